import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, narrow
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_clone,
    check_widen,
    outputs,
    randomised,
    same,
    same_costs,
)

layers = keras.layers
UNITS = 6


def network(layer):
    inputs = keras.Input((5, 4))
    x = layer(layers.Dense(7, name="stem")(inputs))
    return randomised(keras.Model(inputs, layers.Dense(3, name="out")(layers.Flatten()(x))))


def gru(**options):
    return layers.GRU(UNITS, name="cell", **options)


CELLS = {
    "lstm": lambda: layers.LSTM(UNITS, name="cell"),
    "lstm, all steps, without bias": lambda: layers.LSTM(
        UNITS, return_sequences=True, use_bias=False, name="cell"
    ),
    "gru": gru,
    "gru, reset before": lambda: gru(reset_after=False),
    "gru, backwards": lambda: gru(go_backwards=True),
    "simple": lambda: layers.SimpleRNN(UNITS, name="cell"),
}


def silence(cell, cut):
    """Zero the weights that read the cut units of a cell."""
    kernel = np.asarray(cell.recurrent_kernel).copy()
    kernel[cut] = 0
    cell.recurrent_kernel.assign(kernel)


def silence_out(source, cut):
    """Zero the weights of the last layer for the cut channels, at every step."""
    kernel, bias = source.get_layer("out").get_weights()
    rows = kernel.reshape(-1, len(cut), kernel.shape[-1]).copy()
    rows[:, cut] = 0
    source.get_layer("out").set_weights([rows.reshape(kernel.shape), bias])


@pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)
def test_cutting_units_equals_masking(make):
    source = network(make())
    structure, keep = analyse(source), alternate(UNITS)
    assert structure.widths == {"stem": 7, "cell": UNITS}
    small = narrow(structure, {"cell": keep})
    silence(source.get_layer("cell").cell, ~keep)
    silence_out(source, ~keep)
    same(outputs(source, batch(source)), outputs(small, batch(source)))
    same_costs(structure, {"cell": int(keep.sum())}, small)


@pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)
def test_widening_and_cloning_do_not_change_the_outputs(make):
    check_widen(network(make()))
    check_clone(network(make()))


def both(**options):
    return layers.Bidirectional(layers.LSTM(UNITS, name="lstm"), name="both", **options)


@pytest.mark.parametrize("mode", ["concat", "sum"])
def test_both_directions_are_cut_together(mode):
    source = network(both(merge_mode=mode))
    structure, keep = analyse(source), alternate(UNITS)
    assert structure.widths == {"stem": 7, "both": UNITS}
    small = narrow(structure, {"both": keep})
    for layer in (source.get_layer("both").forward_layer, source.get_layer("both").backward_layer):
        silence(layer.cell, ~keep)
    silence_out(source, ~np.tile(keep, 2 if mode == "concat" else 1))
    same(outputs(source, batch(source)), outputs(small, batch(source)))
    same_costs(structure, {"both": int(keep.sum())}, small)
    check_widen(network(both(merge_mode=mode)))


def test_multiply_adds_match_values_computed_by_hand():
    actual = {layer.name: layer.multiply_adds for layer in analyse(network(both())).network().layers}
    assert actual["both"] == 2 * 5 * 4 * UNITS * (7 + UNITS)


@pytest.mark.parametrize("make", [*CELLS.values(), both], ids=[*CELLS, "both"])
def test_a_network_without_its_last_unit_has_lower_costs(make):
    """Such costs are computed for the last unit of a group."""
    structure = analyse(network(make()))
    last, none = ({name: width for name in structure.groups if name != "stem"} for width in (1, 0))
    assert structure.network(none).params < structure.network(last).params
    assert structure.network(none).size_bytes() < structure.network(last).size_bytes()


def test_a_mask_given_by_name_is_not_taken_for_a_sequence():
    inputs, mask = keras.Input((5, 4), name="inputs"), keras.Input((5,), dtype="bool", name="mask")
    x = layers.GRU(UNITS, name="cell")(sequences=layers.Dense(7, name="stem")(inputs), mask=mask)
    source = randomised(keras.Model([inputs, mask], layers.Dense(2)(x)))
    structure, keep = analyse(source), alternate(7)
    assert structure.widths == {"stem": 7, "cell": UNITS}
    kernel, bias = source.get_layer("stem").get_weights()
    source.get_layer("stem").set_weights([kernel * keep, bias * keep])
    arrays = [batch(source)[0], np.random.default_rng(2).uniform(size=(3, 5)) < 0.7]
    same(outputs(source, arrays), outputs(narrow(structure, {"stem": keep}), arrays))


def test_an_initial_state_is_refused():
    inputs, state = keras.Input((5, 4)), keras.Input((UNITS,))
    x = layers.GRU(UNITS, name="cell")(inputs, initial_state=state)
    with pytest.raises(UnsupportedLayerError, match="'cell' is given its initial state"):
        analyse(keras.Model([inputs, state], layers.Dense(2)(x)))


def test_a_softmax_inside_a_cell_is_refused():
    with pytest.raises(UnsupportedLayerError, match="'cell' has an activation that mixes"):
        analyse(network(layers.GRU(UNITS, activation="softmax", name="cell")))


def test_other_wrapped_layers_are_refused():
    inputs = keras.Input((5, 4, 4, 2))
    x = layers.Bidirectional(layers.ConvLSTM2D(3, 2), name="both")(inputs)
    with pytest.raises(UnsupportedLayerError, match="'both' wraps ConvLSTM2D"):
        analyse(keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x))))


@pytest.mark.parametrize(
    "wrap", [lambda layer: layer, lambda layer: layers.Bidirectional(layer, name="cell")]
)
def test_a_state_between_batches_is_refused(wrap):
    inputs = keras.Input(batch_shape=(3, 5, 4))
    model = keras.Model(inputs, layers.Dense(2)(wrap(gru(stateful=True))(inputs)))
    with pytest.raises(UnsupportedLayerError, match="'cell' is stateful; expected stateful=False"):
        analyse(model)
