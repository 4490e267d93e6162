"""The order in which MorphNet takes units away, which its importance of them decides."""

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
