"""The common base of algorithms that make several cuts."""

import keras
import numpy as np
import pytest

from executors.algorithms.baselines.uniform import UniformExecutor
from executors.algorithms.morphnet.executor import MorphNetExecutor
from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.assignment import Assignment
from executors.data import Dataset
from executors.pruning.params import IterativePruningParams
from executors.pruning.state import PruningState
from executors.structure import analyse, removable_blocks, remove_blocks
from executors.training.evaluation import evaluate, recalibrate
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import constant
from mistify.costs.budget import FLOPS, exceeded, meets

layers = keras.layers


def silent_network():
    """Return a network with two hidden layers, of which the second is only read with zero weights."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,), name="x")
    x = layers.Dense(6, "tanh", name="first")(inputs)
    x = layers.Dense(4, "tanh", name="second")(x)
    return keras.Model(inputs, layers.Dense(3, "softmax", kernel_initializer="zeros", name="y")(x))


def examples(seed, count=32):
    rng = np.random.default_rng(seed)
    return Dataset({"x": rng.normal(size=(count, 5)).astype("float32")}, {"y": rng.integers(0, 3, count)})


def training_setup(learning_rate=1e-3):
    params = TrainingParams(batch_size=8, learning_rate=learning_rate, distillation=0.0)
    return TrainingSetup(examples(0), examples(1), None, params)


def test_units_without_readers_have_no_importance():
    source = silent_network()
    structure = analyse(source)
    executor = UniformExecutor(IterativePruningParams(adapt_steps=1, cuts=1))
    budget = {FLOPS: 0.5 * structure.network().flops}
    executor.init(Assignment(source, budget, (), training_setup(), 0, structure))
    with np.errstate(all="raise"):
        state = executor._state
        values = state.values(state.compensation.moments(training_setup().train))
    assert values["second"].tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(values["first"].mean(), 1)


def test_a_network_that_loses_its_last_norm_keeps_its_optimizer_and_its_state():
    """The optimizer also keeps its state for the weights."""
    inputs = keras.Input((5,), name="x")
    x = layers.Dense(6, "tanh")(inputs)
    x = layers.Add()([x, layers.Dense(6, "tanh")(layers.BatchNormalization()(x))])
    source = keras.Model(inputs, layers.Dense(3, "softmax", name="y")(x))
    setup = training_setup(learning_rate=None)
    state = PruningState.of(source, Assignment(source, {}, (), setup, 0, analyse(source)), lambda _: None)
    state.trainer.train(constant(3))
    before = state.trainer.optimizer_state()
    rebuilt = state.rebuilt(remove_blocks(state.structure, removable_blocks(state.structure)), lambda _: None)
    assert not any(isinstance(layer, layers.BatchNormalization) for layer in rebuilt.trainer.model.layers)
    after = rebuilt.trainer.optimizer_state()
    assert (after.optimizer, after.steps) == (before.optimizer, 3) == ("sgd", 3)
    assert rebuilt.trainer.usual_rate == state.trainer.usual_rate
    for path, moment in after.arrays["momentums"].items():
        np.testing.assert_array_equal(moment, before.arrays["momentums"][path])


@pytest.mark.parametrize("adapt_steps", [0, 1, 3, 8, 20])
def test_an_edge_takes_at_most_the_configured_steps(adapt_steps):
    params = IterativePruningParams(adapt_steps=adapt_steps, cuts=8)
    assert params.adapting_steps(100.0) <= adapt_steps
    assert params.planned_cuts(100.0) >= 1


@pytest.mark.parametrize(
    ("executor_class", "params_class"),
    [(UniformExecutor, IterativePruningParams), (MorphNetExecutor, MorphNetParams)],
)
def test_without_training_steps_a_network_is_cut_once_and_fitted(
    executor_class, params_class, trained, digits, training_setup
):
    params = params_class(adapt_steps=0)
    structure = analyse(trained)
    budget = {FLOPS: 0.5 * structure.network().flops}
    executor = executor_class(params)
    executor.init(Assignment(trained, budget, (), training_setup, 0, structure))
    assert params.adapting_steps(2.0) == 0
    assert executor.iterate() == 0
    assert meets(executor.measure(), budget)
    executor.trainer.apply_average()
    network = executor.network()
    recalibrate(network, digits[0])
    assert evaluate(network, digits[1]) > evaluate(trained, digits[1]) - 0.15


@pytest.mark.sampled
@pytest.mark.parametrize(("worth", "rebuilt_at"), [(0, None), (1 / 0.6, 0.5), (20, 0.9)])
def test_a_network_is_rebuilt_if_that_saves_more_time_than_it_takes(
    trained, training_setup, worth, rebuilt_at
):
    """Masks do not change shapes, so that training wasted on masked units adds up along a path.

    Tuning the whole network takes `worth` times as long as building and tracing it.
    """
    structure = analyse(trained)
    start = structure.network().flops
    building = 4e9 * len(structure.graph.layers)  # multiply-adds that take equally long
    params = MorphNetParams(adapt_steps=2, cuts=2, tune_steps=round(worth * building / (3 * 64 * start)))
    executor = MorphNetExecutor(params)
    executor.init(Assignment(trained, {FLOPS: start}, (), training_setup, 0, analyse(trained)))
    executor.trainer.train(constant(1))
    trainer = executor.trainer
    for share in (0.9, 0.75, 0.5):
        budget = {FLOPS: share * start}
        executor.init(Assignment(executor.network(), budget, (), training_setup, 0, analyse(trained)))
        while exceeded(executor.measure(), budget):
            executor.adjust({FLOPS: 1.0})
            executor.iterate()
        if rebuilt_at is not None and share <= rebuilt_at:
            assert executor.trainer is not trainer
            assert executor._state.masked_flops < 0.1 * start
            break
        assert executor.trainer is trainer
        assert trainer._run.experimental_get_tracing_count() == 1
    assert executor.network().count_params() < trained.count_params()
