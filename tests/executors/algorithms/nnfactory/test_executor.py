"""NN-Factory on the server: a slice for each goal, and what it needs no step for."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.algorithms.nnfactory import ALGORITHM
from executors.algorithms.nnfactory.executor import NNFactoryExecutor
from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.algorithms.nnfactory.supernet import Supernet
from executors.contract.assignment import Assignment
from executors.contract.executor import StuckError
from executors.contract.preparation import PreparationProgress
from executors.contract.registry import profile_of
from executors.data import Dataset
from executors.structure import analyse
from executors.training.setup import TrainingSetup
from mistify.config.task import TaskConfig
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, MEMORY, meets
from mistify.costs.profiles import NominalProfile
from mistify.errors import MistifyError
from mistify.scenarios.quality import UNMEASURED, Quality
from tests.executors.algorithms.nnfactory.conftest import PARAMS, residual
from tests.executors.algorithms.nnfactory.test_supernet import TASK, supernet_of

ANY_TOP = TaskConfig(properties=("any", "top"))


@pytest.fixture(scope="module")
def supernet():
    return supernet_of(residual)


@pytest.fixture(scope="module")
def prepared(supernet):
    return supernet.saved()


@pytest.fixture
def assigned(assigned_once, prepared):
    """Return an edge with a task to a share of the multiply-adds."""
    whole = assigned_once.source.network().flops

    def assigned(share, **changes):
        changes = {"task": ANY_TOP, "prepared": prepared, **changes}
        return replace(assigned_once, budget={FLOPS: share * whole}, **changes)

    return assigned


def flops(model):
    return costs_of(analyse(model).network(), ())[FLOPS]


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_a_goal_has_the_slice_of_its_task_and_takes_no_step(assigned, supernet, share):
    executor, assignment = NNFactoryExecutor(PARAMS), assigned(share)
    executor.init(assignment)
    assert meets(executor.measure(), assignment.budget)
    network = executor.network()
    assert flops(network) == executor.measure()[FLOPS] <= assignment.budget[FLOPS]
    assert executor.calibrated
    image = np.random.default_rng(0).random((4, 8, 8, 1), np.float32)
    slices = map(supernet.slice, supernet.assemblies(TASK, np.geomspace(0.1, 1, 24)))
    assert any(
        flops(one) == flops(network) and np.allclose(one(image), network(image), atol=1e-6) for one in slices
    )


def test_another_limit_has_another_slice_of_the_same_task(assigned):
    executor = NNFactoryExecutor(PARAMS)
    executor.init(assigned(1.0))
    first = executor.network()
    tighter = replace(assigned(1.0, model=first), budget={FLOPS: 0.9 * flops(first)})
    executor.init(tighter)
    assert meets(executor.measure(), tighter.budget)


def test_a_network_of_its_architecture_can_be_seen_before(assigned):
    executor, assignment = NNFactoryExecutor(PARAMS), assigned(0.5)
    seen = executor.preview(assignment)
    executor.init(assignment)
    assert analyse(seen).widths == analyse(executor.network()).widths


def test_a_limit_below_the_smallest_slice_is_reported(assigned):
    executor = NNFactoryExecutor(PARAMS)
    executor.init(assigned(0.01))
    assert executor.measure()[FLOPS] > 0
    with pytest.raises(StuckError, match=r"^multiply-adds \S+ over \S+ with the smallest slice for any, top"):
        executor.iterate()


@pytest.mark.parametrize("missing", [{"task": None}, {"prepared": b""}])
def test_without_a_task_or_a_supernet_there_is_no_network(assigned, missing):
    with pytest.raises(ValueError, match="no task or no preparation"):
        NNFactoryExecutor(PARAMS).init(assigned(0.5, **missing))


def test_a_task_that_the_space_does_not_have_is_refused(assigned):
    with pytest.raises(MistifyError, match='did you mean "top"'):
        NNFactoryExecutor(PARAMS).init(assigned(0.5, task=TaskConfig(properties=("any", "tob"))))


def classifier():
    """A network that tells four classes apart, and data."""
    keras.utils.set_random_seed(1)
    image = keras.Input((8, 8, 1), name="image")
    hidden = keras.layers.Dense(32, "relu", name="hidden")(keras.layers.Flatten()(image))
    model = keras.Model(image, keras.layers.Dense(4, "softmax", name="colour")(hidden))
    rng = np.random.default_rng(0)
    inputs, targets = rng.random((80, 8, 8, 1), np.float32), rng.integers(0, 4, 80)
    return model, Dataset(
        {"image": inputs}, {"colour": targets}, {"colour": ("red", "green", "blue", "grey")}
    )


def test_some_classes_have_the_slice_of_their_task_with_their_rows_alone():
    model, data = classifier()
    setup = TrainingSetup(data, data, None, PARAMS)
    assignment = Assignment(model, {}, (), setup, 3, analyse(model))
    progress = PreparationProgress()
    content = NNFactoryExecutor(PARAMS).prepare(assignment, progress)
    assert progress.step == PARAMS.gate_steps
    executor = NNFactoryExecutor(PARAMS)
    task = TaskConfig(classes=("grey", "green"))
    of_task = replace(setup, train=data.of_classes(task.classes), validation=data.of_classes(task.classes))
    executor.init(replace(assignment, task=task, prepared=content, setup=of_task))
    network = executor.network()
    assert network.output.shape == (None, 2)
    supernet = Supernet.loaded(content, assignment.source)
    encoded = supernet.encoded(task)
    assert encoded.tolist() == [0, 1, 0, 1]
    whole = [supernet.slice(one) for one in supernet.assemblies(encoded, supernet.quality.tried_limits())]
    images = data.inputs["image"][:5]
    outputs = [np.asarray(one(images))[:, [1, 3]] for one in whole]
    shares = [output / output.sum(axis=1, keepdims=True) for output in outputs]
    assert any(np.allclose(share, network(images), atol=1e-5) for share in shares)


def test_a_supernet_serves_all_limits_and_tasks():
    own = ALGORITHM.prepared_from(PARAMS, {FLOPS: 1.0})
    for other in ({"inside": True}, {"tune_steps": 5}, {"max_steps": 5}):
        assert ALGORITHM.prepared_from(PARAMS.model_copy(update=other), {MEMORY: 2.0}) == own
    for other in ({"gate_steps": 5}, {"batch_size": 5}, {"modulate": False}, {"noise": True}):
        assert ALGORITHM.prepared_from(PARAMS.model_copy(update=other), {FLOPS: 1.0}) != own
    assert ALGORITHM.serves_tasks


def test_a_network_with_few_units_inside_blocks_has_no_supernet(assigned_once):
    image = keras.Input((8, 8, 1), name="image")
    hidden = keras.layers.Dense(31, "relu")(keras.layers.Flatten()(image))
    source = analyse(keras.Model(image, keras.layers.Dense(1, "sigmoid", name="answer")(hidden)))
    progress = PreparationProgress()
    assert NNFactoryExecutor(PARAMS).prepare(replace(assigned_once, source=source), progress) == b""
    assert progress.step == 0
    assert not profile_of("nnfactory", PARAMS, source).prepares


def test_all_training_is_of_the_preparation(assigned_once):
    profile = profile_of("nnfactory", NNFactoryParams(), assigned_once.source)
    assert profile.preparation_steps(3.0) == 4500
    assert profile.steps(3.0) == 0


def test_the_tasks_that_it_serves_have_the_mean_costs_of_their_slices(assigned):
    supernet = supernet_of(residual)
    supernet.quality = Quality(
        tasks=("any, top", "all, bottom"), limits=(0.1, 0.4, 1.0), scores=((0.6, 0.7, 0.8),) * 2
    )
    profiles = (NominalProfile("board", 1.0, 1.0),)
    served = NNFactoryExecutor(PARAMS).served_tasks(
        assigned(1.0, prepared=supernet.saved(), profiles=profiles)
    )
    assert (served.space, served.quality, served.classes) == (supernet.space, supernet.quality, ())
    tasks = (supernet.space.encode(supernet.space.parse(name)) for name in served.quality.tasks)
    each = [
        [analyse(supernet.slice(one)).network().flops for one in supernet.assemblies(task, (0.1, 0.4, 1.0))]
        for task in tasks
    ]
    assert served.costs[FLOPS] == pytest.approx(np.mean(each, axis=0))
    assert served.costs["latency_ms@board"] == tuple(sorted(served.costs["latency_ms@board"]))
    assert {len(own) for own in served.costs.values()} == {3}


def test_a_source_without_a_supernet_serves_no_tasks(assigned):
    assert NNFactoryExecutor(PARAMS).served_tasks(assigned(1.0, prepared=b"")) is None
    unmeasured = supernet_of(residual)
    unmeasured.quality = UNMEASURED
    assert NNFactoryExecutor(PARAMS).served_tasks(assigned(1.0, prepared=unmeasured.saved())) is None
