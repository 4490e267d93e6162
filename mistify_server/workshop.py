"""What a worker does with each kind of task. What one task loads or computes stays warm for the next."""

import tempfile
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import keras
import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from executors.base import AdaptationExecutor, Assignment, Params, executor_class
from executors.data import Dataset, check_dataset, load_dataset
from executors.evaluation import accuracy, probabilities
from executors.sources import builtin_source, flatten, load_application, load_source
from executors.structure import analyse
from executors.timesheet import activity, timesheet
from executors.training import Schooling
from mistify.budget import Costs
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.hardware import HardwareProfile
from mistify.validation import problems_of
from mistify_server.adaptor.edge import run_edge
from mistify_server.adaptor.source import calibrated, expanded, tuned_source
from mistify_server.packaging.package import PackageOrder, make_package
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks import (
    LOADING,
    AdaptResult,
    AdaptTask,
    Inspection,
    InspectTask,
    ModelSource,
    PackageResult,
    PackageTask,
    Progress,
    SourceResult,
    SourceTask,
    Task,
)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Done: TypeAlias = Inspection | SourceResult | AdaptResult | PackageResult


@dataclass(frozen=True)
class _Journey:
    """A path of a goal tree on its way down: the executor, where it has come to, and what it was told.

    Attributes:
        checkpoint: The artifact of `network`, the executor's latest.
        told: What an edge has in common with the next one, for the executor to go on.
    """

    executor: AdaptationExecutor
    checkpoint: str
    network: keras.Model
    told: tuple[object, ...]


class Workshop:
    """Does tasks, one at a time."""

    def __init__(self, artifacts: Artifacts, say: Callable[[Progress], None]) -> None:
        self._artifacts = artifacts
        self._say = say
        self._data = _until_changed(load_dataset, str)
        self._source = _until_changed(self._load_source, lambda source: source.path or source.weights or "")
        self._model = lru_cache(maxsize=4)(self._load_model)
        self._lesson: tuple[str, Dataset, npt.NDArray[np.float32]] | None = None
        self._journey: _Journey | None = None

    def do(self, task: Task) -> Done:
        """The result of a task, with where its time went.

        Raises:
            MistifyError: what the user gave cannot be used, or a package is not what it should be.
            FloatingPointError: training diverged.
        """
        with timesheet() as sheet, activity("other"):
            result = self._do(task)
        return result.model_copy(update={"spent": sheet.seconds})

    def _do(self, task: Task) -> Done:
        if isinstance(task, InspectTask):
            return self._inspect(task)
        if isinstance(task, SourceTask):
            return self._prepare(task)
        if isinstance(task, AdaptTask):
            return self._adapt(task)
        return self._package(task)

    def _inspect(self, task: InspectTask) -> Inspection:
        problems: list[Problem] = []
        model = _collect(problems, "model", lambda: self._source(task.model))
        _collect(problems, "algorithm.config", lambda: _params(task.algorithm, task.algorithm_config))
        for part, source in (("dataset.train", task.data.train), ("dataset.test", task.data.test)):
            data = _collect(problems, part, partial(self._data, source))
            if data is not None and model is not None:
                problems += check_dataset(data, part, model.input_shape, model.output_shape[-1])
        costs: Costs = {}
        floor: Costs = {}
        profiles = _profiles(task.hardware)
        if model is not None:
            profiles = calibrated(profiles, model)
            structure = analyse(model)
            costs = structure.network().costs(profiles)
            floor = structure.network(dict.fromkeys(structure.groups, 1)).costs(profiles)
        return Inspection(
            costs=dict(costs),
            floor=dict(floor),
            hardware={
                profile.name: (profile.compute_power, profile.memory_bandwidth) for profile in profiles
            },
            problems=[(p.place, p.given, p.expected, p.fix) for p in problems],
        )

    def _prepare(self, task: SourceTask) -> SourceResult:
        keras.utils.set_random_seed(task.seed)
        params = _params(task.algorithm, task.algorithm_config)
        profiles = _profiles(task.hardware)
        source = self._source(task.model)
        test = self._data(task.data.test)
        source_costs = analyse(source).network().costs(profiles)
        source_accuracy = accuracy(source, test)
        self._progress("tuning the source", 0, params.source_steps, source_costs, source_accuracy)
        teacher = tuned_source(
            source,
            _schooling(self._data(task.data.train), test, None, params),
            params,
            task.seed,
            lambda done: self._progress("tuning the source", done, params.source_steps, source_costs, None),
        )
        root = expanded(analyse(teacher), task.exceed, profiles, task.seed)
        return SourceResult(
            source_costs=dict(source_costs),
            source_accuracy=source_accuracy,
            teacher=self._keep(teacher),
            teacher_accuracy=accuracy(teacher, test),
            root=self._keep(root),
            root_costs=dict(analyse(root).network().costs(profiles)),
            steps=params.source_steps,
        )

    def _adapt(self, task: AdaptTask) -> AdaptResult:
        params = _params(task.algorithm, task.algorithm_config)
        train, test = self._data(task.data.train), self._data(task.data.test)
        teacher = self._taught(task.teacher, train)
        executor, parent, told = self._set_out(task, params, (train, test, teacher))
        assignment = Assignment(
            model=parent,
            budget=task.budget,
            profiles=_profiles(task.hardware),
            schooling=_schooling(train, test, teacher, params),
            seed=task.seed,
            source_widths=analyse(self._model(task.teacher)).widths,
        )
        outcome = run_edge(executor, assignment, params, task.accuracy_target, self._progress)
        checkpoint = self._keep(outcome.model)
        self._journey = _Journey(executor, checkpoint, outcome.model, told)
        return AdaptResult(
            checkpoint=checkpoint,
            costs=dict(outcome.costs),
            accuracy=outcome.accuracy,
            met=outcome.met,
            reason=outcome.reason,
            steps=outcome.steps,
        )

    def _set_out(
        self, task: AdaptTask, params: Params, lesson: tuple[object, ...]
    ) -> tuple[AdaptationExecutor, keras.Model, tuple[object, ...]]:
        """The executor of an edge, its parent's network, and what the executor is told.

        The executor is the parent edge's, if that was the last one here: it goes on with all that it has
        compiled and learned. It is given away, so that an edge that fails leaves nothing behind.
        """
        # The executor holds the lesson, so that no other can get its identity.
        told = (task.algorithm, params, sorted(task.hardware.items()), *map(id, lesson))
        journey, self._journey = self._journey, None
        if journey is not None and (journey.checkpoint, journey.told) == (task.parent, told):
            return journey.executor, journey.network, told
        # Not on the way: TensorFlow then forgets how all that it has compiled is run.
        keras.utils.set_random_seed(task.seed)
        return executor_class(task.algorithm)(params), self._model(task.parent), told

    @activity("packaging")
    def _package(self, task: PackageTask) -> PackageResult:
        self._progress("packaging", 0, 1, task.costs, task.accuracy)
        order = PackageOrder(
            task.job_id, task.goal_id, task.budget, task.accuracy_target, task.costs, task.accuracy
        )
        package = make_package(self._model(task.checkpoint), order, self._data(task.data.test))
        files = {
            name: self._artifacts.put(content, Path(name).suffix) for name, content in package.files.items()
        }
        size = package.manifest.files["serve.tflite"].size
        return PackageResult(
            files=files, size_bytes=size, measured_latency_ms=package.manifest.latency.median_ms
        )

    def _progress(self, stage: str, step: int, total: int, costs: Costs, accuracy: float | None) -> None:
        self._say(Progress(stage=stage, step=step, total_steps=total, costs=dict(costs), accuracy=accuracy))

    @activity("saving")
    def _keep(self, model: keras.Model) -> str:
        """Put a checkpoint into the artifacts."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "checkpoint.keras"
            model.save(path)
            return self._artifacts.put(path)

    def _load_source(self, source: ModelSource) -> keras.Model:
        self._progress(LOADING, 0, 1, {}, None)
        model = _loaded(source)
        self._progress("loaded the model", 1, 1, {}, None)
        return model

    @activity("loading")
    def _load_model(self, artifact: str) -> keras.Model:
        return keras.models.load_model(self._artifacts.path(artifact), compile=False, safe_mode=True)

    def _taught(self, teacher: str, train: Dataset) -> npt.NDArray[np.float32]:
        """The teacher's probabilities for the training data, computed once for all goals of a tree."""
        if self._lesson is None or self._lesson[0] != teacher or self._lesson[1] is not train:
            self._lesson = (teacher, train, probabilities(self._model(teacher), train.x))
        return self._lesson[2]


def _loaded(source: ModelSource) -> keras.Model:
    if source.builtin is not None:
        return flatten(source.builtin, builtin_source(source.builtin))
    if source.application is not None:
        weights = None if source.weights is None else Path(source.weights)
        return load_application(source.application, source.classes, source.input, weights)
    return load_source(Path(source.path or ""), source.sequence, source.classes)


def _until_changed(load: Callable[[K], T], path_of: Callable[[K], str]) -> Callable[[K], T]:
    """Keep what was loaded from the last files or directories until a file changes."""

    @lru_cache(maxsize=4)
    @activity("loading")
    def loaded(key: K, _stamps: tuple[tuple[int, int], ...]) -> T:
        return load(key)

    def current(key: K) -> T:
        path = path_of(key)
        return loaded(key, _stamps(Path(path)) if path else ())

    return current


def _stamps(path: Path) -> tuple[tuple[int, int], ...]:
    """When each file of a model or dataset was last changed, and its size."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    states = [file.stat() for file in files if file.is_file()]
    return tuple((state.st_mtime_ns, state.st_size) for state in states)


def _collect(problems: list[Problem], subject: str, look: Callable[[], T]) -> T | None:
    """What is found, or None and the problems, told of the subject."""
    try:
        return look()
    except MistifyError as error:
        found = error.problems or (Problem(subject, str(error), "something usable", "correct it"),)
        problems += [Problem(_place(subject, p), p.given, p.expected, p.fix) for p in found]
        return None


def _place(subject: str, problem: Problem) -> str:
    return problem.place if problem.place.startswith("algorithm.config") else subject


def _params(algorithm: str, config: dict[str, object]) -> Params:
    """The settings of an algorithm.

    Raises:
        MistifyError: INVALID_CONFIG with every problem, by its place in the config.
    """
    params_class = executor_class(algorithm).params_class
    try:
        return params_class.model_validate(config)
    except ValidationError as error:
        problems = problems_of(error, params_class, "algorithm.config")
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, "the algorithm's settings are wrong", problems
        ) from error


def _profiles(hardware: dict[str, tuple[float, float]]) -> tuple[HardwareProfile, ...]:
    return tuple(HardwareProfile(name, power, bandwidth) for name, (power, bandwidth) in hardware.items())


def _schooling(
    train: Dataset, test: Dataset, teacher: npt.NDArray[np.float32] | None, params: Params
) -> Schooling:
    return Schooling(
        train,
        test,
        teacher,
        params.batch_size,
        params.optimizer,
        params.learning_rate,
        params.distillation,
        params.temperature,
    )
