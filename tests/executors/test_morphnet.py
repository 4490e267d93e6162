import keras
import numpy as np
import pytest

from executors.base import Assignment
from executors.data import Dataset
from executors.morphnet import STRONGEST, MorphNetExecutor, worth_by_blocks
from executors.params import MorphNetParams, TrainingParams
from executors.structure import analyse
from executors.training.evaluation import evaluate, recalibrate
from executors.training.setup import TrainingSetup
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, PARAMS, SIZE, exceeded, latency_axis
from mistify.costs.profiles import HardwareProfile
from mistify_server.worker.adaptation.edge import run_edge
from tests.executors.conftest import small_resnet


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
def test_a_short_edge_takes_few_cuts(trained, training_setup):
    whole = analyse(trained).network().flops
    for share, cuts in ((0.85, 1), (0.02, 4)):
        executor = started(trained, training_setup, {FLOPS: share * whole})
        steps = 0
        while executor.measure()[FLOPS] > share * whole:
            executor.adjust({FLOPS: 1.0})
            steps += executor.iterate()
        assert steps == cuts * 2, share


@pytest.mark.slow
def test_units_below_the_threshold_go_at_once_and_no_further_than_the_budget(trained, training_setup):
    """Half of every group is dead: gone in the first cut, where a threshold of 0 keeps to the schedule."""
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
def test_regularisation_strength_is_a_loss_per_multiply_add_but_no_more_than_scales_bear(
    trained, training_setup, arrays, strength
):
    flops = analyse(trained).network().flops
    executor = started(trained, training_setup, {FLOPS: flops / 2}, init_reg_strength=arrays)
    executor.adjust({FLOPS: 1.0})
    strengths = executor._state.loss._strengths.numpy()
    assert strengths.mean() == pytest.approx(strength or arrays * flops, rel=1e-4)
    assert strengths.std() > 0


def test_weights_steer_what_is_cut(trained, training_setup):
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


def test_an_edge_keeps_accuracy(trained, training_setup):
    """Half the multiply-adds at little loss, against the same cut without any training."""
    start = costs_of(analyse(trained).network())
    budget = {FLOPS: 0.5 * start[FLOPS], SIZE: start[SIZE]}
    params = MorphNetParams(adapt_steps=80, cuts=4, tune_steps=120, max_steps=200)
    arrays = Assignment(trained, budget, (), training_setup, 1, analyse(trained))
    outcome = run_edge(MorphNetExecutor(params), arrays, params, (), lambda *_: None, measure=unmeasured)
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
    """A device whose kernels compute eight output channels at once."""

    name = "eight-at-once"

    def latency_ms(self, network):
        return sum(
            -(-one.c_out // 8) * one.positions * one.kernel * one.c_in / 1e6 for one in network.operations
        )

    def slower(self, factor):
        return self


@pytest.mark.sampled
@pytest.mark.parametrize("share", [0.6, 0.3])
def test_nothing_is_cut_that_saves_nothing(trained, training_setup, share):
    """No group could have a unit more: what lies between two steps of the costs stays."""
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


def sums_over_positions(essential):
    """Return a network with a residual block, and examples whose class is the sign of a sum over positions.

    All that follows the block sees the first position alone: where the block is essential, it alone looks at
    the others; else what comes before it has summed them up already.
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


@pytest.mark.slow
@pytest.mark.parametrize("essential", [True, False])
def test_a_block_goes_only_if_the_network_can_do_without_it(essential):
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


def side_by_side(a, b, signs=16):
    """Two branches of so many units each."""
    inputs = keras.Input((signs,), name="signs")
    branches = [keras.layers.Dense(n, use_bias=False, name=name)(inputs) for name, n in (("a", a), ("b", b))]
    outputs = keras.layers.Dense(signs, name="side")(keras.layers.Concatenate()(branches))
    return keras.Model(inputs, outputs)


def two_branches(a, b):
    """Two branches of 16 units in all, or 64, on data in which no unit can take over from another.

    Units matter by their outgoing weights, 1, 3, 5, ... in both branches: the incoming ones are small
    beside them and, like the variances, the same for all.
    """
    units = a + b
    model = side_by_side(a, b, units)
    for name, columns in (("a", np.eye(units)[:, :a]), ("b", np.eye(units)[:, a:])):
        model.get_layer(name).set_weights([columns])
    outgoing = 100 * np.diag([*range(1, 2 * a, 2), *range(1, 2 * b, 2)])
    model.get_layer("side").set_weights([outgoing, np.zeros(units)])
    examples, channels = np.arange(2 * units)[:, None], np.arange(1, units + 1)
    signs = (-1.0) ** np.bitwise_count(examples & channels)
    train, test = (
        Dataset({"signs": sign * signs.astype("float32")}, {"side": np.zeros(2 * units, np.int64)})
        for sign in (1, -1)
    )
    params = TrainingParams(batch_size=32, learning_rate=1e-12, distillation=0.0)
    return model, TrainingSetup(train, test, None, params)


@pytest.mark.parametrize(
    ("units", "source", "after_cuts"),
    [
        # Alike in all: 1, 3 and 5 of both go, then 7 and 9.
        ((8, 8), (8, 8), {6: {"a": 5, "b": 5}, 10: {"a": 3, "b": 3}}),
        # What is left of a counts 15/7: 1, 3, 5, 7 of b and 2.1, 6.4 of a go before 9 and 10.7. Then, as
        # shares of the means 10 and 12 and times 15/5 and 7/3, b has 1.75, 2.14, 2.53 and a 1.50, 2.10, 2.70.
        ((8, 8), (16, 8), {6: {"a": 6, "b": 4}, 10: {"a": 4, "b": 2}}),
        # Of both a half is left. As shares of the means, times 3/1 and 27/13, a has 1.50, and b 0.15, 0.45,
        # 0.74, 1.04, 1.34: without the first of two a branch is hurt more than without five of 14.
        ((2, 14), (4, 28), {5: {"a": 2, "b": 9}}),
    ],
)
def test_units_count_the_more_the_fewer_others_of_their_group_are_left(units, source, after_cuts):
    model, setup = two_branches(*units)
    start = analyse(model).network().flops
    executor = MorphNetExecutor(MorphNetParams(adapt_steps=1, cuts=1, threshold=0, init_reg_strength=0))
    for cuts, widths in after_cuts.items():
        budget = {FLOPS: start * (16 - cuts) / 16}
        executor.init(Assignment(model, budget, (), setup, 0, analyse(side_by_side(*source))))
        executor.adjust({FLOPS: 1.0})
        executor.iterate()
        model = executor.network()
        assert analyse(model).widths == widths


def test_of_few_units_not_all_but_one_go_before_many_of_others():
    """As shares of the means, 1.25 is before 1.35, so that one of four would be left and 19 of 60.

    Where all groups have 0.325 of their units, which is what the budget allows, no group is to lose much more
    than that of what it has beside its last unit. So of the four the third goes after more of the 60.
    """
    model, setup = two_branches(4, 60)
    structure = analyse(model)
    executor = MorphNetExecutor(MorphNetParams(adapt_steps=1, cuts=1, threshold=0, init_reg_strength=0))
    budget = {FLOPS: structure.network().flops * 20 / 64}
    executor.init(Assignment(model, budget, (), setup, 0, structure))
    executor.adjust({FLOPS: 1.0})
    executor.iterate()
    assert analyse(executor.network()).widths == {"a": 2, "b": 18}


def cheap_beside_costly(weights):
    """Eight units that 16 layers make, which count four times as much, beside eight that one layer makes.

    Args:
        weights: Outgoing ones of those that one layer makes; of the others they are alike.
    """
    inputs = keras.Input((16,), name="signs")
    makers = [keras.layers.Dense(8, use_bias=False, name=f"costly_{index}") for index in range(16)]
    costly = keras.layers.Add()([maker(inputs) for maker in makers])
    cheap = keras.layers.Dense(8, use_bias=False, name="cheap")(inputs)
    outputs = keras.layers.Dense(16, name="side")(keras.layers.Concatenate()([costly, cheap]))
    model = keras.Model(inputs, outputs)
    for maker in makers:
        maker.set_weights([np.eye(16)[:, :8] / 16])
    model.get_layer("cheap").set_weights([np.eye(16)[:, 8:]])
    model.get_layer("side").set_weights([np.diag([100.0] * 8 + weights), np.zeros(16)])
    return model


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("weights", "left"),
    [
        # Four costly ones go, and none else; three of them with seven cheap ones would do as well.
        ([100.0] * 8, 8),
        # Dead ones are no loss.
        ([100.0] * 2 + [1e-3] * 6, 2),
    ],
)
def test_what_saves_little_is_not_cut_to_nothing_for_what_is_costly(weights, left):
    _, setup = two_branches(8, 8)
    model = cheap_beside_costly(weights)
    structure = analyse(model)
    budget = {PARAMS: 2448 - 3 * 272 - 7 * 32}
    executor = MorphNetExecutor(MorphNetParams(adapt_steps=1, cuts=1, init_reg_strength=0))
    executor.init(Assignment(model, budget, (), setup, 0, structure))
    executor.adjust({PARAMS: 1.0})
    executor.iterate()
    assert analyse(executor.network()).widths["cheap"] == left
    assert not exceeded(executor.measure(), budget)


def test_a_unit_counts_for_the_root_of_the_layers_that_make_it():
    """All units are worth the same; those that 16 layers make count four times as much."""
    _, setup = two_branches(8, 8)
    model = cheap_beside_costly([100.0] * 8)
    structure = analyse(model)
    executor = MorphNetExecutor(MorphNetParams(adapt_steps=1, cuts=1))
    limits = {PARAMS: 0.9 * structure.network().params}
    executor.init(Assignment(model, limits, (), setup, 0, structure))
    moments = executor._state.compensation.moments(setup.train)
    importance = {name: value for value, name, _ in executor._candidates(moments, limits)}
    assert len(importance) == 2
    assert importance.pop("cheap") == pytest.approx(1, rel=1e-3)
    assert list(importance.values()) == pytest.approx([4], rel=1e-3)


def test_below_a_layer_norm_channels_are_cut_for_good(training_setup):
    """A masked channel would still count in the norm's statistics, as a zero."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Dense(16, "relu")(keras.layers.Flatten()(inputs))
    x = keras.layers.LayerNormalization()(x)
    model = keras.Model(inputs, keras.layers.Dense(10, "softmax", name="digit")(x))
    start = analyse(model).network().flops
    executor = started(model, training_setup, {FLOPS: start / 2})
    executor.adjust({FLOPS: 1.0})
    executor.iterate()
    assert all(mask.all() for mask in executor._state.masks.keep.values())
    assert executor.network().count_params() < model.count_params()


def test_the_less_will_be_left_of_the_source_the_faster_it_learns(trained, training_setup):
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


def test_a_rebuilt_network_learns_as_fast_as_before(trained, training_setup):
    whole = analyse(trained).network().flops
    executor = started(trained, training_setup, {FLOPS: 0.3 * whole})
    before = executor.trainer
    executor._rebuild(executor._state.structure)
    assert executor.trainer is not before
    assert executor.trainer.learning_rate == before.learning_rate


def test_what_is_cut_has_a_third_of_the_sources_dropout_however_long_the_path(training_setup):
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


def test_a_grouped_convolution_is_cut_to_one_group_and_its_channels_further(training_setup):
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


@pytest.mark.parametrize(
    ("savings", "expected"),
    [
        # What saves in proportion changes nothing.
        ({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}, [1.0, 2.0, 3.0, 4.0]),
        # Two at once: the first two lose 3 for as much as the others lose 7 for.
        ({1: 0.0, 2: 2.0, 3: 2.0, 4: 4.0}, [1.5, 1.5, 3.5, 3.5]),
        # Three quarters of what is saved are saved with the first: it costs a third of its importance.
        ({1: 3.0, 2: 3.0, 3: 3.0, 4: 4.0}, [1 / 3, 9.0, 9.0, 9.0]),
        # The last two save nothing.
        ({1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0}, [0.5, 1.0, np.inf, np.inf]),
        # Only some widths were computed.
        ({2: 2.0, 4: 4.0}, [1.5, 1.5, 3.5, 3.5]),
    ],
)
def test_units_are_worth_what_their_block_loses_for_what_it_saves(savings, expected):
    np.testing.assert_allclose(worth_by_blocks(np.array([1.0, 2.0, 3.0, 4.0]), savings), expected)
