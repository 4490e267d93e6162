import keras
import numpy as np
import pytest

from executors.algorithms.morphnet.executor import STRONGEST, MorphNetExecutor
from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.assignment import Assignment
from executors.data import Dataset
from executors.pruning.loss_table import LossTable
from executors.pruning.table_widths import widths_within
from executors.structure import analyse, removable_blocks, remove_blocks
from executors.training.evaluation import Evaluation, evaluate, recalibrate
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, PARAMS, SIZE, exceeded, latency_axis
from mistify.costs.profiles import HardwareProfile
from mistify_server.worker.adaptation.edge import run_edge
from tests.executors.conftest import small_resnet
from tests.mistify_server.worker.adaptation.machines import no_file_costs


def started(trained, training_setup, budget, **settings):
    executor = MorphNetExecutor(MorphNetParams(adapt_steps=8, cuts=4, **settings))
    executor.init(Assignment(trained, budget, (), training_setup, 0, analyse(trained)))
    return executor


def test_cuts_are_spread_over_the_edge(trained, training_setup):
    whole = analyse(trained).network().flops
    executor = started(trained, training_setup, {FLOPS: whole / 4})
    actual = []
    for _ in range(4):
        executor.adjust({FLOPS: 1.0})
        executor.iterate()
        actual.append(executor.measure()[FLOPS] / whole)
    expected = [0.25 ** (cut / 4) for cut in (1, 2, 3, 4)]
    assert all(0.75 * wanted < share <= wanted for share, wanted in zip(actual, expected, strict=True)), (
        actual
    )


@pytest.mark.slow
def test_a_short_edge_makes_few_cuts(trained, training_setup):
    whole = analyse(trained).network().flops
    for share, cuts in ((0.85, 1), (0.02, 4)):
        executor = started(trained, training_setup, {FLOPS: share * whole})
        steps = 0
        while executor.measure()[FLOPS] > share * whole:
            executor.adjust({FLOPS: 1.0})
            steps += executor.iterate()
        assert steps == cuts * 2, share


@pytest.mark.slow
def test_units_below_the_threshold_are_cut_first_but_not_beyond_the_budget(trained, training_setup):
    """Half of every group is dead and removed by the first cut; a threshold of 0 follows the schedule."""
    dying = small_resnet()
    dying.set_weights(trained.get_weights())
    structure = analyse(dying)
    for group in structure.groups.values():
        dead = np.arange(group.size // 2)
        for slot in group.slots:
            variable = structure.graph.layers[slot.layer].weights[slot.weight]
            values = np.moveaxis(np.asarray(variable).copy(), slot.axis, 0)
            values[slot.positions[dead]] *= 0.01
            variable.assign(np.moveaxis(values, 0, slot.axis))
    budget = {PARAMS: 0.4 * structure.network().params}

    def first_cut(threshold):
        executor = started(
            dying, training_setup, budget, threshold=threshold, init_reg_strength=0, learning_rate=1e-6
        )
        executor.adjust({PARAMS: 1.0})
        executor.iterate()
        return executor.measure()[PARAMS]

    assert first_cut(0.1) < 0.85 * first_cut(0.0)
    assert first_cut(0.99) > 0.85 * budget[PARAMS]


@pytest.mark.parametrize(("arrays", "strength"), [(1e-9, None), (1e-3, STRONGEST)])
def test_regularisation_strength_is_a_loss_per_multiply_add_with_an_upper_bound(
    trained, training_setup, arrays, strength
):
    flops = analyse(trained).network().flops
    executor = started(trained, training_setup, {FLOPS: flops / 2}, init_reg_strength=arrays)
    executor.adjust({FLOPS: 1.0})
    strengths = executor._state.loss._strengths.numpy()
    assert strengths.mean() == pytest.approx(strength or arrays * flops, rel=1e-4)
    assert strengths.std() > 0


def test_weights_of_losses_influence_what_is_cut(trained, training_setup):
    start = costs_of(analyse(trained).network())
    budget = {FLOPS: 0.01 * start[FLOPS], PARAMS: 0.01 * start[PARAMS]}

    def left(weights):
        executor = started(trained, training_setup, budget)
        executor.adjust(weights)
        return executor._marginal_costs()

    on_flops, on_params = left({FLOPS: 1.0, PARAMS: 0.0}), left({FLOPS: 0.0, PARAMS: 1.0})
    assert on_flops != pytest.approx(on_params)


def unmeasured(model):
    raise AssertionError("nothing limits latency")


def test_an_edge_preserves_accuracy(trained, training_setup):
    """It loses little at half the multiply-adds, compared with the same cut without training."""
    start = costs_of(analyse(trained).network())
    budget = {FLOPS: 0.5 * start[FLOPS], SIZE: start[SIZE]}
    params = MorphNetParams(adapt_steps=80, cuts=4, tune_steps=120, max_steps=200)
    arrays = Assignment(trained, budget, (), training_setup, 1, analyse(trained))
    outcome = run_edge(
        MorphNetExecutor(params), arrays, params, (), lambda *_: None, measure=unmeasured, read=no_file_costs
    )
    assert outcome.met, outcome.reason
    assert not exceeded(outcome.costs, budget)
    assert 120 < outcome.steps <= 200
    untrained = started(trained, training_setup, budget)
    untrained._cut(1.0)
    raw = untrained.network()
    recalibrate(raw, training_setup.train)
    assert outcome.scores.overall > evaluate(raw, training_setup.validation) + 0.05
    assert outcome.scores.overall > evaluate(trained, training_setup.validation) - 0.05


class EightAtOnce(HardwareProfile):
    """A device with kernels that compute eight output channels at once."""

    name = "eight-at-once"
    evidence = "how it is defined"

    def latency_ms(self, network):
        return sum(
            -(-one.c_out // 8) * one.positions * one.kernel * one.c_in / 1e6 for one in network.operations
        )

    def slower(self, factor):
        return self


@pytest.mark.sampled
@pytest.mark.parametrize("share", [0.6, 0.3])
def test_no_units_are_cut_without_saving_costs(trained, training_setup, share):
    """One unit more in any group that was cut would exceed the limit: no cut goes beyond a cost step."""
    device, structure = EightAtOnce(), analyse(trained)
    axis = latency_axis(device.name)
    limits = {axis: share * costs_of(structure.network(), [device])[axis]}
    executor = MorphNetExecutor(MorphNetParams(adapt_steps=2, cuts=1))
    executor.init(Assignment(trained, limits, (device,), training_setup, 0, structure))
    executor.adjust({axis: 1.0})
    executor.iterate()
    left = analyse(executor.network())
    assert costs_of(left.network(), [device])[axis] <= limits[axis]
    for name, width in left.widths.items():
        if width < structure.widths[name]:
            more = left.network({**left.widths, name: width + 1})
            assert costs_of(more, [device])[axis] > limits[axis], (name, left.widths)


def test_groups_are_cut_gradually_to_the_widths_of_the_measured_losses(trained, training_setup):
    """All but the first group lose much, so that it is cut as far as the others allow."""
    structure = analyse(trained)
    spare, *others = structure.groups
    losses = {name: {group.size // 2: 1.0, 1: 4.0} for name, group in structure.groups.items()}
    losses[spare] = dict.fromkeys(losses[spare], 0.0)
    table = LossTable(structure.widths, losses)
    limits = {FLOPS: 0.5 * structure.network().flops}
    planned = widths_within(table, structure, structure.widths, limits, ())
    assert planned[spare] / structure.widths[spare] < min(planned[n] / structure.widths[n] for n in others)

    executor = MorphNetExecutor(MorphNetParams(adapt_steps=8, cuts=4))
    inputs = Assignment(trained, limits, (), training_setup, 0, structure, prepared=table.saved())
    executor.init(inputs)
    widths = [structure.widths[spare]]
    for _ in range(4):
        executor.adjust({FLOPS: 1.0})
        executor.iterate()
        widths.append(analyse(executor.network()).widths[spare])
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > widths[1] > widths[-1]
    assert analyse(executor.network()).widths == planned


def test_a_limit_that_only_fewer_blocks_can_meet_is_planned_without_losses_too(trained, training_setup):
    """The losses determine the widths of the groups that are left."""
    structure = analyse(trained)
    shallow = remove_blocks(structure, removable_blocks(structure))
    limits = {FLOPS: 1.2 * shallow.network(shallow.least_widths).flops}
    losses = {name: {1: 1.0} for name in structure.groups}
    table = LossTable(structure.widths, losses).saved()
    executor = MorphNetExecutor(MorphNetParams(adapt_steps=0, tune_steps=0))
    executor.init(Assignment(trained, limits, (), training_setup, 0, structure, prepared=table))
    executor.adjust({FLOPS: 1.0})
    executor.iterate()
    assert not exceeded(executor.measure(), limits)


def sums_over_positions(essential):
    """Return a network with a residual block, and examples labelled by the sign of a sum over positions.

    Layers after the block see only the first position. An essential block reads the other positions;
    otherwise, the layers before it have already computed the sum.
    """
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 4), name="signs")
    x = keras.layers.Conv1D(8, 1 if essential else 8, padding="causal")(inputs[:, ::-1])
    y = keras.layers.Conv1D(8, 8, padding="causal", activation="relu")(x)
    x = keras.layers.Add(name="block")([x, keras.layers.Conv1D(8, 1)(y)])
    outputs = keras.layers.Dense(2, "softmax", name="side")(x[:, -1])
    rng = np.random.default_rng(0)
    values = rng.normal(size=(600, 8, 4)).astype(np.float32)
    data = Dataset({"signs": values}, {"side": (values[..., 0].sum(axis=1) > 0).astype(np.int64)})
    return keras.Model(inputs, outputs), data


@pytest.mark.sampled
@pytest.mark.parametrize("essential", [True, False])
def test_a_block_is_removed_only_if_it_is_not_essential(essential):
    device = EightAtOnce()
    model, data = sums_over_positions(essential)
    setup = TrainingSetup(data, data, None, TrainingParams(batch_size=32, optimizer="adam"))
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
    model.fit(data.inputs["signs"], data.targets["side"], batch_size=32, epochs=20, verbose=0)
    structure, axis = analyse(model), latency_axis(device.name)
    assert evaluate(model, data) > 0.9
    limits = {axis: 0.45 * costs_of(structure.network(), [device])[axis]}
    executor = MorphNetExecutor(MorphNetParams(adapt_steps=4, cuts=1))
    assignment = Assignment(model, limits, (device,), setup, 0, structure)
    preview = executor.preview(assignment)
    executor.init(assignment)
    executor.adjust({axis: 1.0})
    executor.iterate()
    for network in (preview, executor.network()):
        assert ("block" in {layer.name for layer in network.layers}) is essential
    assert not exceeded(executor.measure(), limits)


def test_masked_channels_do_not_count_in_the_statistics_of_a_layer_norm(digits, training_setup):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Dense(16, "relu")(keras.layers.Flatten()(inputs))
    x = keras.layers.LayerNormalization()(x)
    model = keras.Model(inputs, keras.layers.Dense(10, "softmax", name="digit")(x))
    start = analyse(model).network().flops
    executor = started(model, training_setup, {FLOPS: start / 2})
    executor.adjust({FLOPS: 1.0})
    executor.iterate()
    assert executor.network().count_params() < model.count_params()
    masked, cut = (
        Evaluation(each).outputs(digits[1].inputs) for each in (executor.trainer.model, executor.network())
    )
    np.testing.assert_allclose(masked["digit"], cut["digit"], atol=1e-6)


def test_the_learning_rate_increases_with_the_amount_that_is_cut(trained, training_setup):
    whole = costs_of(analyse(trained).network(), ())
    for axis, share, pace in (
        (FLOPS, 2.0, 0.1),
        (FLOPS, 1.0, 0.1),
        (FLOPS, 2**-0.5, 0.5),
        (FLOPS, 0.5, 1.0),
        (PARAMS, 0.3, np.log2(1 / 0.3)),
        (FLOPS, 0.1, 2.0),
    ):
        executor = started(trained, training_setup, {axis: share * whole[axis]})
        assert executor.trainer.learning_rate == pytest.approx(pace * executor.trainer.usual_rate)


def test_a_rebuilt_network_keeps_its_learning_rate(trained, training_setup):
    whole = analyse(trained).network().flops
    executor = started(trained, training_setup, {FLOPS: 0.3 * whole})
    before = executor.trainer
    executor._rebuild(executor._state.structure)
    assert executor.trainer is not before
    assert executor.trainer.learning_rate == before.learning_rate


def test_cut_networks_have_a_third_of_the_dropout_of_the_source_however_long_the_path(training_setup):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Dense(32, "relu")(keras.layers.Flatten()(inputs))
    x = keras.layers.Dropout(0.3, name="drop")(x)
    source = keras.Model(inputs, keras.layers.Dense(10, "softmax", name="digit")(x))
    start, model = analyse(source).network().flops, source
    for share in (0.6, 0.2):
        executor = MorphNetExecutor(MorphNetParams(adapt_steps=2, cuts=1))
        executor.init(Assignment(model, {FLOPS: share * start}, (), training_setup, 0, analyse(source)))
        executor.adjust({FLOPS: 1.0})
        executor.iterate()
        model = executor.network()
        assert model.get_layer("drop").rate == pytest.approx(0.1)
    assert source.get_layer("drop").rate == 0.3


def test_a_grouped_convolution_is_cut_to_one_group_and_then_further(training_setup):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Conv2D(8, 3, activation="relu", name="a")(inputs)
    x = keras.layers.Conv2D(8, 3, groups=2, activation="relu", name="b")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, keras.layers.Dense(10, "softmax", name="digit")(x))
    source = analyse(model)
    for share in (0.4, 0.15):
        budget = {FLOPS: source.network().flops * share}
        executor = MorphNetExecutor(MorphNetParams(adapt_steps=4, cuts=2))
        executor.init(Assignment(model, budget, (), training_setup, 0, source))
        for _ in range(2):
            executor.adjust({FLOPS: 1.0})
            executor.iterate()
        model = executor.network()
        assert not exceeded(executor.measure(), budget)
    assert model.get_layer("b").groups == 1
