"""Prepare tasks: the shared work of an algorithm for all goals of a tree.

Interrupted attempts resume from their stored parts. Earlier preparations from the same source and data, with
the same code and settings, are reused. Both are found by a digest of all these inputs.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Final

import keras
import numpy as np

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor
from executors.contract.params import Params
from executors.contract.preparation import PreparationProgress
from executors.contract.registry import algorithm, executor_class
from executors.data import Array
from executors.structure import analyse
from executors.training.setup import TrainingSetup
from mistify.costs.axes import depend_on_hardware
from mistify.jobs.job import ProgressUpdate
from mistify.scenarios.served import ServedTasks
from mistify_server.store.artifacts import Artifacts
from mistify_server.store.preparations import Preparations
from mistify_server.tasks.code import code_digest
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import PrepareResult
from mistify_server.tasks.tasks import PrepareTask
from mistify_server.worker.adaptation.progress import reporter
from mistify_server.worker.params import params_of
from mistify_server.worker.training_setups import TrainingSetups

#: Packages with code and versions that affect all algorithms.
_PACKAGES: Final = ("executors", "mistify")
_LIBRARIES: Final = ("keras", "tensorflow")

#: Number of array rows to read at once.
_ROWS: Final = 1_000


class Preparer:
    """Runs the preparations of algorithms.

    Args:
        artifacts: Stores preparations, and the tasks that they serve.
        setups: Prepares data and teachers.
        on_progress: Receives the progress.
    """

    def __init__(self, artifacts: Artifacts, setups: TrainingSetups, on_progress: OnProgress) -> None:
        self._artifacts = artifacts
        self._preparations = Preparations(artifacts)
        self._setups = setups
        self._on_progress = on_progress

    def prepare(self, task: PrepareTask) -> PrepareResult:
        """Return an earlier preparation, or make one."""
        params, profiles = params_of(task.recipe), task.recipe.profiles
        task = _essential(task, params)
        recipe = task.recipe
        setup = self._setups.prepare(recipe, params, task.task)
        teacher = self._setups.teacher(recipe, task.task)
        structure = analyse(teacher, params.layers)
        source = Assignment(
            teacher, task.least, recipe.profiles, setup, recipe.seed, structure, task=task.task
        )
        executor = executor_class(recipe.algorithm)(params)
        result = self._stored_or_made(key_of(task, teacher, setup), task, executor, source)
        if result.prepared is None or not algorithm(recipe.algorithm).serves_tasks:
            return result
        content = self._artifacts.intact(result.prepared).read_bytes()
        served = executor.served_tasks(replace(source, profiles=profiles, prepared=content))
        return result if served is None else result.model_copy(update={"served": self._kept(served)})

    def _kept(self, served: ServedTasks) -> str:
        return self._artifacts.put(served.model_dump_json(by_alias=True).encode(), ".json")

    def _stored_or_made(
        self, key: str, task: PrepareTask, executor: AdaptationExecutor, source: Assignment
    ) -> PrepareResult:
        with self._preparations.held(key):
            artifact = self._preparations.artifact(key)
            if artifact is not None:
                return PrepareResult(prepared=artifact, steps=0)
            keras.utils.set_random_seed(source.seed)
            progress = _KeptProgress(self._preparations, key, task, self._on_progress)
            content = executor.prepare(source, progress)
            artifact = self._preparations.finish(key, content) if content else None
            return PrepareResult(prepared=artifact, steps=progress.step)


class _KeptProgress(PreparationProgress):
    """Reports the progress of a task, and stores finished parts.

    Args:
        preparations: The store's preparations.
        key: Key of this preparation.
        task: The task in progress.
        on_progress: Receives the progress.
    """

    def __init__(
        self, preparations: Preparations, key: str, task: PrepareTask, on_progress: OnProgress
    ) -> None:
        super().__init__()
        self._preparations = preparations
        self._key = key
        self._stage = f"preparing {task.recipe.algorithm}"
        self._report = reporter(on_progress, task.recipe.data.validation_metric)

    def report(self, step: int, total: int, loss: float | None = None) -> None:
        super().report(step, total, loss)
        self._report(ProgressUpdate(self._stage, step, total, loss=loss))

    def part(self, name: str) -> bytes:
        return self._preparations.part(self._key, name)

    def keep(self, name: str, content: bytes) -> None:
        self._preparations.keep(self._key, name, content)


def key_of(task: PrepareTask, teacher: keras.Model, setup: TrainingSetup) -> str:
    """Return a digest of all inputs of a preparation.

    Args:
        task: A task whose hardware profiles are those that its limits name, and no others: figures of
            hardware are measured again for each job.
        teacher: The tuned source; its file format is irrelevant.
        setup: The training setup with the data; file names are irrelevant.
    """
    recipe = task.recipe
    named = {"recipe": {"model", "teacher", "data"}}
    digest = hashlib.sha256(task.model_dump_json(exclude=named).encode())
    by_content = recipe.data.settings.model_copy(update={"tasks": None, "labels": None})
    digest.update(by_content.model_dump_json().encode())
    digest.update(setup.train.space.model_dump_json().encode() if setup.train.space else b"")
    digest.update(json.dumps(dict(setup.train.classes)).encode())
    digest.update(teacher.to_json().encode())
    # Exclude other variables: the seeds of dropout do not affect the network.
    arrays = [weight.numpy() for weight in teacher.weights]
    for data in (setup.train, setup.validation):
        arrays += [*data.inputs.values(), *data.targets.values()]
        arrays += [] if data.answers is None else [data.answers]
    for content in _contents(arrays):
        digest.update(content)
    digest.update(_code(executor_class(recipe.algorithm).__module__.partition(".")[0]).encode())
    return digest.hexdigest()


def _essential(task: PrepareTask, params: Params) -> PrepareTask:
    """Return a task reduced to the settings, limits and hardware that affect its result."""
    recipe = task.recipe
    settings, least = algorithm(recipe.algorithm).prepared_from(params, task.least)
    hardware = {name: profile for name, profile in recipe.hardware.items() if depend_on_hardware(least, name)}
    essential = recipe.model_copy(update={"settings": dict(settings), "hardware": hardware})
    return task.model_copy(update={"recipe": essential, "least": dict(least)})


def _contents(arrays: Iterable[Array]) -> Iterator[bytes]:
    """Yield the types, shapes and contents of arrays, which may exceed memory."""
    for array in arrays:
        yield f"{array.dtype} {array.shape}\n".encode()
        rows = np.atleast_1d(array)
        for start in range(0, len(rows), _ROWS):
            yield rows[start : start + _ROWS].tobytes()


def _code(package: str) -> str:
    """Return a digest of the code of an algorithm's package and of the shared code."""
    libraries = [f"{library} {version(library)}" for library in _LIBRARIES]
    return "\n".join([*libraries, code_digest((*_PACKAGES, *({package} - set(_PACKAGES))))])
