"""The networks of `factory.classes`: slices of a supernet and their rivals, with accuracies and costs."""

from collections.abc import Collection, Sequence
from functools import partial
from itertools import combinations, cycle
from time import process_time
from typing import Final

import keras
import numpy as np
import numpy.typing as npt

from benchmarks.factory.packages import files_of
from benchmarks.factory.requests import latency_ms
from benchmarks.factory.slice_time import slice_seconds
from benchmarks.harness.worker import Checkpoint, Porting
from executors.algorithms.nnfactory.class_tasks import ClassTasks
from executors.algorithms.nnfactory.gates import GATES, SCALES, SHIFTS
from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.algorithms.nnfactory.search import best_slice, slices_of
from executors.algorithms.nnfactory.supernet import Assembly, Supernet
from executors.algorithms.nnfactory.training import FactoryTraining
from executors.contract.assignment import Assignment
from executors.contract.preparation import PreparationProgress
from executors.contract.slices import Slice
from executors.data import Array, Dataset
from executors.structure import analyse
from executors.structure.signature import signature_of
from executors.training.evaluation import Evaluation
from executors.training.setup import TrainingSetup
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.task import TaskConfig
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS
from mistify.package.factory import ASSEMBLER, FACTORY, SUPERNET, FactoryStore
from mistify_server.worker.packaging.conversion.converter import convert

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Classes = tuple[int, ...]

#: The classes of each task.
TASKS: Final[Sequence[Classes]] = tuple(combinations(range(10), 3))

#: Number of tasks that are never trained.
_UNSEEN: Final = 24

#: The limit of all networks, as a share of the multiply-adds of the whole one.
SHARE: Final = 0.25


def held_out(seed: int) -> list[int]:
    """Return the numbers of the tasks that are never trained."""
    chosen: list[int] = np.random.default_rng(seed).permutation(len(TASKS))[:_UNSEEN].tolist()
    return sorted(chosen)


def supernet_of(porting: Porting, tasks: Sequence[Collection[int]], params: NNFactoryParams) -> Supernet:
    """Return the supernet of the tuned network that is trained for some tasks."""
    source, settings = porting.source(), porting.data.settings
    train, validation = porting.learning()
    setup = TrainingSetup(train, validation, None, params, settings)
    assignment = Assignment(source, {}, (), setup, params.seed, analyse(source))
    own = ClassTasks(train, signature_of(source), settings, tasks)
    keras.utils.set_random_seed(params.seed)
    content = FactoryTraining(assignment, params, PreparationProgress(), own).finished()
    return Supernet.loaded(content, assignment.source)


def slice_of(supernet: Supernet, classes: Classes) -> Slice:
    """Return the slice that `nnfactory` chooses for a task within the limit."""
    budget = {FLOPS: SHARE * costs_of(supernet.structure.network(), ())[FLOPS]}
    return best_slice(slices_of(supernet, _task_of(classes)), budget, ())


def share_of(supernet: Supernet, one: Slice) -> float:
    """Return the multiply-adds of a slice as a share of the whole network's."""
    return costs_of(one.cost, ())[FLOPS] / costs_of(supernet.structure.network(), ())[FLOPS]


def slice_accuracies(supernet: Supernet, chosen: Sequence[Slice], test: Dataset) -> Floats:
    """Return the accuracy of the slice of each task [tasks]."""
    ((_, targets),) = test.targets.items()
    accuracies = []
    for one, classes in zip(chosen, TASKS, strict=True):
        rows = np.isin(targets, classes)
        inputs = {name: array[rows] for name, array in test.inputs.items()}
        outputs = supernet.outputs(inputs, assembly_of(supernet, one))
        accuracies.append(_accuracy(outputs, targets[rows], classes))
    return np.array(accuracies)


def assembly_of(supernet: Supernet, one: Slice) -> Assembly:
    """Return the gates, scales and shifts of a slice."""
    kept, values = dict[str, Bools](), dict[str, list[npt.NDArray[np.float32]]]()
    for group, units in zip(supernet.groups, one.units, strict=False):  # classes are further units
        is_open = np.isin(np.arange(group.units), units.kept)
        kept[group.name] = is_open
        for kind, own in ((GATES, np.ones(units.kept.size)), (SCALES, units.scale), (SHIFTS, units.shift)):
            of_all = np.zeros(group.units, np.float32)
            of_all[is_open] = own
            values.setdefault(kind, []).append(of_all)
    return Assembly(kept, {kind: np.concatenate(own) for kind, own in values.items()})


def cut_accuracies(network: keras.Model, test: Dataset) -> Floats:
    """Return the accuracy on each task of a network without the rows of other classes [tasks]."""
    (outputs,) = Evaluation(network).outputs(test.inputs).values()
    (targets,) = test.targets.values()
    of_task = (np.isin(targets, classes) for classes in TASKS)
    return np.array(
        [_accuracy(outputs[rows], targets[rows], own) for rows, own in zip(of_task, TASKS, strict=True)]
    )


def _accuracy(outputs: Array, targets: Array, classes: Classes) -> float:
    """Return the accuracy among some classes in per cent."""
    predicted = np.array(classes)[outputs[:, list(classes)].argmax(axis=1)]
    return float(100 * np.mean(predicted == targets))


def tuned_accuracy(
    porting: Porting, rival: Checkpoint, classes: Classes, steps: int, test: Dataset
) -> tuple[float, float]:
    """Tune the rival for a task, and return its accuracy and the processor time."""
    began = process_time()
    tuned = porting.trained_on(rival, SHARE, steps, _task_of(classes))
    seconds = process_time() - began
    data = test.of_classes(classes)
    (outputs,) = Evaluation(porting.network(tuned)).outputs(data.inputs).values()
    (targets,) = data.targets.values()
    return float(100 * np.mean(outputs.argmax(axis=1) == targets)), seconds


def latency_shares(whole: keras.Model, networks: Sequence[keras.Model]) -> list[float]:
    """Return the latencies of networks as shares of the whole network's."""
    of_whole, *others = (latency_ms(convert(each, QuantizationConfig())) for each in (whole, *networks))
    return [each / of_whole for each in others]


def time_of_slices(supernet: Supernet) -> float:
    """Return the processor time of a slice on a device."""
    files = files_of(supernet, {})
    store = FactoryStore.model_validate_json(files[FACTORY])
    tasks = cycle(_task_of(classes).classes for classes in TASKS)
    return slice_seconds(store, files[SUPERNET], files[ASSEMBLER], partial(next, tasks))


def _task_of(classes: Classes) -> TaskConfig:
    return TaskConfig(classes=tuple(map(str, classes)))
