"""The order in which MorphNet removes units, determined by their importance."""

import keras
import numpy as np
import pytest

from executors.algorithms.morphnet.executor import MorphNetExecutor, worth_by_blocks
from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.assignment import Assignment
from executors.data import Dataset
from executors.structure import analyse
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.costs.budget import FLOPS, PARAMS, exceeded


def side_by_side(a, b, signs=16):
    """Return two branches with these numbers of units."""
    inputs = keras.Input((signs,), name="signs")
    branches = [keras.layers.Dense(n, use_bias=False, name=name)(inputs) for name, n in (("a", a), ("b", b))]
    outputs = keras.layers.Dense(signs, name="side")(keras.layers.Concatenate()(branches))
    return keras.Model(inputs, outputs)


def two_branches(a, b):
    """Return two branches of 16 or 64 units in total, and data on which no unit can replace another.

    The importance of units is given by their outgoing weights, 1, 3, 5, ... in both branches: the incoming
    weights are much smaller and, like the variances, equal for all units.
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
        # Equal branches: 1, 3 and 5 of both are cut, then 7 and 9.
        ((8, 8), (8, 8), {6: {"a": 5, "b": 5}, 10: {"a": 3, "b": 3}}),
        # The remaining units of a count 15/7: 1, 3, 5, 7 of b and 2.1, 6.4 of a are cut before 9 and 10.7.
        # Then,
        # relative to the means 10 and 12 and times 15/5 and 7/3, b has 1.75, 2.14, 2.53 and a 1.50, 2.10,
        # 2.70.
        ((8, 8), (16, 8), {6: {"a": 6, "b": 4}, 10: {"a": 4, "b": 2}}),
        # Half of both is left. Relative to the means, times 3/1 and 27/13, a has 1.50, and b 0.15, 0.45,
        # 0.74, 1.04, 1.34: losing the first of two units hurts a branch more than losing five of 14.
        ((2, 14), (4, 28), {5: {"a": 2, "b": 9}}),
    ],
)
def test_units_become_more_important_as_their_group_shrinks(units, source, after_cuts):
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


def test_a_small_group_is_not_cut_to_one_unit_before_a_large_one_shrinks():
    """Relative to the means, 1.25 comes before 1.35, so that one of four units and 19 of 60 would be left.

    The budget allows 0.325 of all units, so that no group should lose a much larger share of its removable
    units. The third of the four is therefore cut after more of the 60.
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
    """Return eight units of 16 layers each, which count four times as much, and eight of one layer.

    Args:
        weights: Outgoing weights of the units that one layer produces; the others have equal weights.
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
        # Only four costly units are cut; three of them with seven cheap ones would suffice as well.
        ([100.0] * 8, 8),
        # Dead units are cut without loss.
        ([100.0] * 2 + [1e-3] * 6, 2),
    ],
)
def test_units_that_save_little_are_not_all_cut_to_keep_costly_ones(weights, left):
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


def test_importance_grows_with_the_root_of_the_number_of_producing_layers():
    """All units have equal weights; those that 16 layers produce count four times as much."""
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


@pytest.mark.parametrize(
    ("savings", "expected"),
    [
        # Proportional savings change nothing.
        ({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}, [1.0, 2.0, 3.0, 4.0]),
        # Savings in pairs: the first pair costs 3, and the second pair 7, for the same savings.
        ({1: 0.0, 2: 2.0, 3: 2.0, 4: 4.0}, [1.5, 1.5, 3.5, 3.5]),
        # The first unit makes three quarters of the savings: it costs a third of its importance.
        ({1: 3.0, 2: 3.0, 3: 3.0, 4: 4.0}, [1 / 3, 9.0, 9.0, 9.0]),
        # The last two units save nothing.
        ({1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0}, [0.5, 1.0, np.inf, np.inf]),
        # Only some widths were evaluated.
        ({2: 2.0, 4: 4.0}, [1.5, 1.5, 3.5, 3.5]),
    ],
)
def test_importance_is_relative_to_the_savings_of_a_block_of_units(savings, expected):
    np.testing.assert_allclose(worth_by_blocks(np.array([1.0, 2.0, 3.0, 4.0]), savings), expected)
