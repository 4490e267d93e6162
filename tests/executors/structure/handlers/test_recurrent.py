import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, narrow
from executors.structure.lstm_memory import LSTMWithMemory
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_clone,
    check_fold,
    check_widen,
    masking,
    outputs,
    randomised,
    same,
    same_costs,
    unmasked,
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


@pytest.mark.parametrize("cell", [layers.GRU, layers.SimpleRNN, layers.LSTM])
def test_the_states_of_a_layer_are_cut_with_its_units_and_those_that_start_from_them(cell):
    def build(mask):
        asked, told = keras.Input((5, 4), name="asked"), keras.Input((3, 2), name="told")
        encoder = cell(UNITS, return_sequences=True, return_state=True, name="encoder")
        steps, state, *_ = encoder(asked)
        steps, state = mask("encoder", steps), mask("encoder", state)
        start = state if cell is not layers.LSTM else [state, mask("encoder", layers.ReLU()(state))]
        x = cell(UNITS, return_sequences=True, name="decoder")(told, initial_state=start)
        x = layers.Attention()([mask("encoder", x), steps])
        return keras.Model([asked, told], layers.Dense(3, name="out")(x))

    source = randomised(build(unmasked))
    structure, keep = analyse(source), alternate(UNITS)
    assert structure.widths == {"encoder": UNITS}
    small = narrow(structure, {"encoder": keep})
    masked = build(lambda group, tensor: masking(keep)(tensor))
    masked.set_weights(source.get_weights())
    for name in ("encoder", "decoder"):
        silence(masked.get_layer(name).cell, ~keep)
    same(outputs(masked, batch(source)), outputs(small, batch(source)))
    same_costs(structure, {"encoder": int(keep.sum())}, small)
    check_clone(small)
    check_widen(source)
    check_fold(source)


@pytest.mark.parametrize("mode", ["concat", "sum", "ave", "mul"])
@pytest.mark.parametrize("steps", [True, False])
def test_states_of_both_directions_are_their_last_outputs(mode, steps):
    inputs = keras.Input((5, 4))
    cell = layers.LSTM(UNITS, return_sequences=steps, return_state=True, name="lstm")
    layer = layers.Bidirectional(cell, merge_mode=mode, name="both")
    x, ahead, _, back, _ = layer(layers.Dense(7, name="stem")(inputs))
    x = layers.GlobalMaxPooling1D()(x) if steps else x
    x = layers.Dense(3)(layers.Concatenate()([x, ahead, back]))
    source = randomised(keras.Model(inputs, x))
    structure = analyse(source)
    assert sum(structure.widths.values()) == 7 + (2 if mode == "concat" else 1) * UNITS
    same(outputs(source, batch(source)), outputs(narrow(structure, {}), batch(source)))
    check_widen(source)


def seq2seq(mask):
    """Return the encoder and decoder of Keras's examples, which hands both states over."""
    asked, told = keras.Input((5, 4), name="asked"), keras.Input((3, 2), name="told")
    _, *states = layers.LSTM(UNITS, return_state=True, name="encoder")(asked)
    x, state, memory = layers.LSTM(UNITS, return_sequences=True, return_state=True, name="decoder")(
        told, initial_state=[mask("encoder", state) for state in states]
    )
    x = layers.Concatenate()(
        [layers.Flatten()(mask("decoder", x)), mask("decoder", state), mask("decoder", memory)]
    )
    return keras.Model([asked, told], layers.Dense(3, name="out")(x))


def test_the_memory_of_an_lstm_is_cut_with_its_units():
    source = randomised(seq2seq(unmasked))
    structure, keep = analyse(source), alternate(UNITS)
    assert structure.widths == {"encoder": UNITS}
    small = narrow(structure, {"encoder": keep})
    masked = seq2seq(lambda group, tensor: masking(keep)(tensor))
    masked.set_weights(source.get_weights())
    for name in ("encoder", "decoder"):
        silence(masked.get_layer(name).cell, ~keep)
    same(outputs(masked, batch(source)), outputs(small, batch(source)))
    same_costs(structure, {"encoder": int(keep.sum())}, small)
    check_clone(small)
    check_widen(source)
    check_fold(source)


def test_an_lstm_returns_its_memory_only_if_it_is_used():
    inputs = keras.Input((5, 4))
    x, state, memory = layers.LSTM(UNITS, return_state=True, name="cell")(inputs)
    for read, kind in ((layers.Add()([x, state]), layers.LSTM), (memory, LSTMWithMemory)):
        source = randomised(keras.Model(inputs, layers.Dense(2)(read)))
        check_clone(source)
        assert kind in map(type, narrow(analyse(source), {}).layers)


def test_a_memory_with_a_mask_is_that_before_the_padding():
    words = keras.Input((5,), dtype="int32")
    x = layers.Embedding(9, 4, mask_zero=True)(words)
    _, state, memory = layers.LSTM(UNITS, return_state=True, name="cell")(x)
    source = randomised(keras.Model(words, layers.Dense(2)(layers.Add()([state, memory]))))
    texts = [np.array([[3, 1, 4, 0, 0], [5, 2, 6, 7, 8], [1, 0, 0, 0, 0]])]
    same(outputs(source, texts), outputs(narrow(analyse(source), {}), texts))


@pytest.mark.parametrize("cell", [layers.GRU, layers.LSTM])
@pytest.mark.parametrize("returns", [False, True])
def test_both_directions_start_from_states_and_are_cut_with_them(cell, returns):
    asked, told = keras.Input((5, 4), name="asked"), keras.Input((3, 2), name="told")
    inner = cell(UNITS, return_state=True, name="cell")
    _, *states = layers.Bidirectional(inner, name="encoder")(asked)
    decoder = layers.Bidirectional(
        cell(UNITS, return_sequences=True, return_state=returns, name="other"), name="decoder"
    )
    made = decoder(told, initial_state=states)
    made = layers.Concatenate()([made[0][:, 0], *made[1:]]) if returns else made
    source = randomised(keras.Model([asked, told], layers.Dense(3)(made)))
    structure = analyse(source)
    assert sum(structure.widths.values()) == 2 * UNITS
    same(outputs(source, batch(source)), outputs(narrow(structure, {}), batch(source)))
    check_clone(source)
    check_widen(source)


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
