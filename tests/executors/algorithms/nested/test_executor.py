"""Nested networks: shared training, kept weights, and saved segments."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.algorithms.nested.executor import NestedExecutor
from executors.algorithms.nested.params import NestedParams
from executors.algorithms.nested.profile import segments_between
from executors.contract.assignment import Assignment
from executors.contract.executor import StuckError
from executors.contract.preparation import PreparationProgress
from executors.pruning.elastic import (
    NestedSegment,
    NestedWeights,
    SegmentTraining,
    first_units,
    loaded,
    saved,
)
from executors.pruning.state import PruningState
from executors.structure import analyse, copied, narrow
from executors.training.evaluation import Evaluation
from executors.training.trainer import OptimizerState, constant
from mistify.config.data.metric import Metric
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS

layers = keras.layers

PARAMS = NestedParams(segment_steps=150, batch_size=32)


def assigned(model, training_setup, share, prepared=b""):
    structure = analyse(model)
    limit = {FLOPS: share * costs_of(structure.network(), ())[FLOPS]}
    return Assignment(model, limit, (), training_setup, 3, structure, prepared)


def cut(executor, assignment):
    """Return the number of steps of an edge, and its network with recalibrated statistics."""
    executor.init(assignment)
    steps = executor.iterate()
    executor.trainer.apply_average()
    executor.trainer.evaluation.recalibrate(assignment.setup.train)
    return steps, executor.network()


@pytest.fixture(scope="module")
def prepared(trained, training_setup) -> bytes:
    return NestedExecutor(PARAMS).prepare(assigned(trained, training_setup, 0.3), PreparationProgress())


@pytest.mark.slow
def test_one_training_run_serves_all_goals(prepared, trained, training_setup) -> None:
    executor, shares, setup = NestedExecutor(PARAMS), (0.8, 0.55, 0.3), training_setup
    networks = {}
    for share in shares:
        parent = networks[min(networks)] if networks else trained
        assignment = replace(assigned(trained, setup, share, prepared), model=parent)
        steps, networks[share] = cut(executor, assignment)
        assert steps == 0
        assert 0.85 < analyse(networks[share]).network().flops / analyse(trained).network().flops / share <= 1
    accuracies = [Evaluation(networks[share]).score(setup.validation, Metric.ACCURACY) for share in shares]
    assert min(accuracies) > 0.7
    # The same cut without training.
    untaught = NestedExecutor(NestedParams(segment_steps=1, batch_size=32))
    _, network = cut(untaught, assigned(trained, setup, 0.3))
    assert accuracies[-1] > 0.1 + Evaluation(network).score(setup.validation, Metric.ACCURACY)


@pytest.mark.slow
def test_a_resumed_preparation_trains_only_the_remaining_steps(prepared, trained, training_setup) -> None:
    """It is resumed in the middle of the only segment, with the same result."""

    class Interrupted(PreparationProgress):
        def __init__(self):
            super().__init__()
            self.steps = []

        def report(self, step, total, loss=None):
            super().report(step, total, loss)
            self.steps.append(step)
            assert total == PARAMS.segment_steps
            assert loss > 0
            if len(self.steps) == 4:
                raise KeyboardInterrupt

    progress, source = Interrupted(), assigned(trained, training_setup, 0.3)
    with pytest.raises(KeyboardInterrupt):
        NestedExecutor(PARAMS).prepare(source, progress)
    again = NestedExecutor(PARAMS).prepare(source, progress)
    assert progress.steps == [19, 38, 57, 76, 95, 114, 133, 150]
    assert again == prepared


@pytest.mark.parametrize(("distance", "segments"), [(0.5, 1), (1.0, 1), (7.9, 1), (8.1, 2), (64.0, 3)])
def test_the_number_of_segments_is_predicted_from_the_goals(distance: float, segments: int) -> None:
    assert segments_between(distance) == segments


def test_narrower_networks_are_parts_of_wider_ones(prepared, trained, training_setup) -> None:
    executor = NestedExecutor(PARAMS)
    _, wide = cut(executor, assigned(trained, training_setup, 0.7, prepared))
    _, slim = cut(executor, replace(assigned(trained, training_setup, 0.4, prepared), model=wide))
    wide_stem, slim_stem = (next(iter(model.get_weights())) for model in (wide, slim))
    columns = {column.tobytes() for column in np.moveaxis(wide_stem, -1, 0)}
    assert slim_stem.shape[-1] < wide_stem.shape[-1] or slim.count_params() < wide.count_params()
    assert all(column.tobytes() in columns for column in np.moveaxis(slim_stem, -1, 0))


@pytest.mark.slow
def test_a_goal_below_the_smallest_segment_gets_its_own_segment(prepared, trained, training_setup) -> None:
    executor = NestedExecutor(PARAMS)
    steps, network = cut(executor, assigned(trained, training_setup, 0.15, prepared))
    assert steps == PARAMS.segment_steps
    steps, _ = cut(executor, replace(assigned(trained, training_setup, 0.14, prepared), model=network))
    assert steps in (0, PARAMS.segment_steps)
    steps, _ = cut(
        executor, replace(assigned(trained, training_setup, 0.6, prepared), model=executor.network())
    )
    assert steps == 0


def test_what_other_edges_left_compiled_does_not_change_a_network(training_setup) -> None:
    """Dropout draws while statistics are recalibrated, and tuning draws the order of the examples."""
    x = layers.Conv2D(8, 3, use_bias=False)(inputs := keras.Input((8, 8, 1), name="image"))
    x = layers.Dropout(0.3)(layers.Activation("relu")(layers.BatchNormalization()(x)))
    model = keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(layers.Flatten()(x)))
    params = NestedParams(segment_steps=8, batch_size=32, learning_rate=0.01)
    content = NestedExecutor(params).prepare(assigned(model, training_setup, 0.5), PreparationProgress())
    kept = NestedExecutor(params)

    def tuned(executor, share):
        cut(executor, assigned(model, training_setup, share, content))
        executor.trainer.train(constant(3))
        executor.trainer.evaluation.recalibrate(training_setup.train)
        return executor.network().get_weights()

    alone = tuned(NestedExecutor(params), 0.7)
    shared = [tuned(kept.for_edge(), share) for share in (0.9, 0.2, 0.7)]
    for array, again in zip(alone, shared[-1], strict=True):
        np.testing.assert_array_equal(again, array)


def test_channels_under_a_group_norm_are_cut_as_others_are(digits, training_setup) -> None:
    """Masked channels do not count in its statistics, because the delivered network does not have them."""
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.GroupNormalization(4)(layers.Dense(16, name="stream")(layers.Flatten()(inputs)))
    x = layers.LayerNormalization()(layers.Dense(24, "relu", name="wide")(x))
    model = keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(x))
    executor = NestedExecutor(NestedParams(segment_steps=4, batch_size=32))
    _, network = cut(executor, assigned(model, training_setup, 0.5))
    assert network.get_layer("stream").units < 16
    assert network.get_layer("wide").units < 24
    assert {type(layer) for layer in network.layers} == {type(layer) for layer in model.layers}
    images = digits[1].inputs
    masked, delivered = (Evaluation(each).outputs(images) for each in (executor.trainer.model, network))
    np.testing.assert_allclose(masked["digit"], delivered["digit"], atol=1e-6)


def dense(*widths):
    x = layers.Flatten()(inputs := keras.Input((8, 8, 1), name="image"))
    for width in widths:
        x = layers.Dense(width, "relu")(x)
    return keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(x))


def test_nothing_is_trained_below_the_smallest_widths(training_setup) -> None:
    executor, segments = NestedExecutor(NestedParams(segment_steps=4, batch_size=32)), []
    executor.init(assigned(dense(4), training_setup, 1e-6))
    for _ in range(2):
        with pytest.raises(StuckError, match="at its minimum"):
            executor.iterate()
        segments.append(len(executor._segments))
    assert segments[0] == segments[1] > 0


def test_a_source_without_channel_groups_is_prepared_unchanged(training_setup) -> None:
    params, source = NestedParams(segment_steps=4, batch_size=32), assigned(dense(), training_setup, 1.0)
    content = NestedExecutor(params).prepare(source, PreparationProgress())
    steps, network = cut(NestedExecutor(params), replace(source, prepared=content))
    assert (steps, network.count_params()) == (0, source.model.count_params())


def test_training_continues_identically_after_saving() -> None:
    weights = {"dense/kernel": np.ones((2, 3), np.float32)}
    optimizer_state = OptimizerState(
        "sgd", 5, {"momentums": {"dense/kernel": np.full((2, 3), 0.5, np.float32)}}
    )
    training = SegmentTraining(NestedSegment({}, {}, {}, weights), 3, optimizer_state)
    again = SegmentTraining.loaded(training.saved())
    assert (again.steps, again.optimizer_state.optimizer, again.optimizer_state.steps) == (3, "sgd", 5)
    for kind, moments in optimizer_state.arrays.items():
        for path, moment in moments.items():
            np.testing.assert_array_equal(again.optimizer_state.arrays[kind][path], moment)
    np.testing.assert_array_equal(again.segment.weights["dense/kernel"], weights["dense/kernel"])
    assert SegmentTraining.loaded(SegmentTraining(training.segment).saved()).optimizer_state is None


def test_a_preparation_survives_saving(prepared) -> None:
    segments = loaded(prepared)
    again = loaded(saved(segments))
    assert len(again) == len(segments) >= 1
    for segment, other in zip(segments, again, strict=True):
        for kind in ("keep", "order", "sizes", "weights"):
            assert getattr(segment, kind).keys() == getattr(other, kind).keys()
            for name, array in getattr(segment, kind).items():
                np.testing.assert_array_equal(array, getattr(other, kind)[name])
    assert loaded(b"") == []


def test_inactive_units_keep_their_weights(trained, training_setup) -> None:
    assignment = assigned(trained, training_setup, 0.5)
    state = PruningState.of(copied(trained), assignment, lambda _: None)
    weights, groups = NestedWeights(state), state.structure.groups
    whole = {name: np.ones(group.size, bool) for name, group in groups.items()}
    half = {name: np.arange(group.size) < group.size // 2 for name, group in groups.items()}
    before = [variable.numpy() for variable in state.trainer.model.trainable_variables]
    weights.show(half)
    for variable in state.trainer.model.trainable_variables:
        variable.assign(2 * variable)
    weights.store()
    weights.show(whole)
    after = [variable.numpy() for variable in state.trainer.model.trainable_variables]
    slim = narrow(analyse(trained), half).trainable_variables
    for was, now, part in zip(before, after, slim, strict=True):
        np.testing.assert_array_equal(np.isin(now, [2 * was, was]), True)
        assert np.sum(now == 2 * was) >= np.prod(part.shape)
        corner = tuple(slice(size) for size in part.shape)
        np.testing.assert_array_equal(now[corner], 2 * was[corner])


def test_intermediate_sizes_are_interpolated_between_segments() -> None:
    sizes = {"conv": np.array([16, 8, 4])}
    segment = NestedSegment({"conv": np.ones(16, bool)}, {"conv": np.arange(16)[::-1]}, sizes, {})
    assert [segment.widths(place)["conv"] for place in (0, 0.25, 0.5, 1)] == [16, 11, 8, 4]
    keep, order = segment.onward()
    assert np.flatnonzero(keep["conv"]).tolist() == [12, 13, 14, 15]
    assert order["conv"].tolist() == [3, 2, 1, 0]
    assert np.flatnonzero(first_units(segment.order, {"conv": 2})["conv"]).tolist() == [14, 15]
