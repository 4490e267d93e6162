import keras
import numpy as np
import pytest

from executors.base import Assignment
from executors.evaluation import accuracy, recalibrate
from executors.morphnet import MorphNetExecutor, MorphNetParams
from executors.structure import analyse
from mistify.budget import FLOPS, PARAMS, SIZE, exceeded
from mistify_server.adaptor.edge import run_edge

from .conftest import small_resnet


def started(trained, schooling, budget, **settings):
    executor = MorphNetExecutor(MorphNetParams(adapt_steps=8, cuts=4, **settings))
    executor.init(Assignment(trained, budget, (), schooling, 0, analyse(trained).widths))
    return executor


def test_cuts_are_spread_over_the_edge(trained, schooling):
    whole = analyse(trained).network().flops
    executor = started(trained, schooling, {FLOPS: whole / 4})
    found = []
    for _ in range(4):
        executor.adjust({FLOPS: 1.0})
        executor.iterate()
        found.append(executor.measure()[FLOPS] / whole)
    expected = [0.25 ** (cut / 4) for cut in (1, 2, 3, 4)]
    assert all(0.75 * wanted < share <= wanted for share, wanted in zip(found, expected, strict=True)), found


def test_a_short_edge_takes_few_cuts(trained, schooling):
    whole = analyse(trained).network().flops
    for share, cuts in ((0.85, 1), (0.65, 2), (0.02, 4)):
        executor = started(trained, schooling, {FLOPS: share * whole})
        steps = 0
        while executor.measure()[FLOPS] > share * whole:
            executor.adjust({FLOPS: 1.0})
            steps += executor.iterate()
        assert steps == cuts * 2, share


def test_units_below_the_threshold_go_at_once_and_no_further_than_the_budget(trained, schooling):
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
            dying, schooling, budget, threshold=threshold, init_reg_strength=0, learning_rate=1e-6
        )
        executor.adjust({PARAMS: 1.0})
        executor.iterate()
        return executor.measure()[PARAMS]

    assert first_cut(0.1) < 0.85 * first_cut(0.0)
    assert first_cut(0.99) > 0.85 * budget[PARAMS]


def test_regularisation_strength_is_a_loss_per_multiply_add(trained, schooling):
    flops = analyse(trained).network().flops
    executor = started(trained, schooling, {FLOPS: flops / 2}, init_reg_strength=1e-6)
    executor.adjust({FLOPS: 1.0})
    strengths = executor._loss._strengths.numpy()
    assert strengths.mean() == pytest.approx(1e-6 * flops, rel=1e-4)
    assert strengths.std() > 0


def test_weights_steer_what_is_cut(trained, schooling):
    start = analyse(trained).network().costs()
    budget = {FLOPS: 0.01 * start[FLOPS], PARAMS: 0.01 * start[PARAMS]}

    def left(weights):
        executor = started(trained, schooling, budget)
        executor.adjust(weights)
        return executor._marginal_costs()

    on_flops, on_params = left({FLOPS: 1.0, PARAMS: 0.0}), left({FLOPS: 0.0, PARAMS: 1.0})
    assert on_flops != pytest.approx(on_params)


def test_an_edge_keeps_accuracy(trained, schooling):
    """Half the multiply-adds at little loss, against the same cut without any training."""
    start = analyse(trained).network().costs()
    budget = {FLOPS: 0.5 * start[FLOPS], SIZE: start[SIZE]}
    params = MorphNetParams(adapt_steps=80, cuts=4, tune_steps=120, max_steps=200)
    given = Assignment(trained, budget, (), schooling, 1, analyse(trained).widths)
    outcome = run_edge(MorphNetExecutor(params), given, params, None, lambda *_: None)
    assert outcome.met, outcome.reason
    assert not exceeded(outcome.costs, budget)
    assert 120 < outcome.steps <= 200
    untrained = started(trained, schooling, budget)
    untrained._cuts = 4
    untrained._cut(budget)
    raw = untrained.network()
    recalibrate(raw, schooling.train)
    assert outcome.accuracy > accuracy(raw, schooling.test) + 0.05
    assert outcome.accuracy > accuracy(trained, schooling.test) - 0.05


def test_below_a_layer_norm_channels_are_cut_for_good(schooling):
    """A masked channel would still count in the norm's statistics, as a zero."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Dense(16, "relu")(keras.layers.Flatten()(inputs))
    x = keras.layers.LayerNormalization()(x)
    model = keras.Model(inputs, keras.layers.Dense(10, "softmax")(x))
    start = analyse(model).network().flops
    executor = started(model, schooling, {FLOPS: start / 2})
    executor.adjust({FLOPS: 1.0})
    executor.iterate()
    assert all(mask.all() for mask in executor._masks.keep.values())
    assert executor.network().count_params() < model.count_params()
