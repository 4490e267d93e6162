"""What a worker does with each kind of task. What one task loads or computes stays warm for the next."""

import io
import tempfile
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import keras
import numpy as np
from pydantic import ValidationError

from executors.augmentation import augmenting
from executors.base import AdaptationExecutor, Assignment, Params, executor_class
from executors.data import Array, Dataset
from executors.evaluation import Evaluation, evaluate
from executors.generation import generated
from executors.metrics import check_defined, default_metric
from executors.objectives import objectives_of, predictions
from executors.scaling import scaled
from executors.signature import signature_of
from executors.structure import analyse
from executors.timesheet import activity, timesheet
from executors.training import Schooling
from mistify.budget import Costs, hardware_of
from mistify.dataset import DataSettings, generated_count
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.hardware import HardwareProfile
from mistify.metric import Metric
from mistify.quantization import Quantization
from mistify.validation import InvalidValue, problems_of
from mistify_server.adaptor.edge import Report, run_edge
from mistify_server.adaptor.latency import calibrated, stopwatch
from mistify_server.adaptor.source import expanded, tuned_source
from mistify_server.materials import DataPart, Materials, parts_of
from mistify_server.packaging.package import SERVE, PackageOrder, make_package
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks import (
    AdaptResult,
    AdaptTask,
    DataSource,
    Inspection,
    InspectTask,
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
        self._materials = Materials(say)
        self._model = lru_cache(maxsize=4)(self._load_model)
        self._lesson: tuple[str, Dataset, Mapping[str, Array]] | None = None
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
        model = _collect(problems, "model", lambda: self._materials.source(task.model))
        if model is not None:
            model = self._examine(problems, "scale", partial(scaled, model, task.data.settings.scale))
        _collect(problems, "algorithm.config", lambda: _params(task.algorithm, task.algorithm_config))
        metric = None if model is None else self._examine_data(problems, task.data, model)
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
            metric=metric,
            problems=[(p.place, p.given, p.expected, p.fix) for p in problems],
        )

    def _examine_data(self, problems: list[Problem], data: DataSource, model: keras.Model) -> Metric | None:
        """What is measured of the model on the data; problems with either are added."""
        train, test = (
            _collect(problems, f"dataset.{part}", partial(self._examined, key, model))
            for part, key in zip(("train", "test"), parts_of(data, signature_of(model)), strict=True)
        )
        if train is None or test is None:
            return None
        objectives = objectives_of(model, train)
        metric = data.settings.metric or default_metric(objectives)
        weights = data.settings.class_weights
        self._examine(problems, "metric", partial(check_defined, metric, objectives, test.targets))
        self._examine(problems, "class_weights", partial(objectives_of, model, train, weights))
        self._examine(problems, "augment", partial(augmenting, model, data.settings.augment))
        return metric

    def _examined(self, part: DataPart, model: keras.Model) -> Dataset:
        """A part of the data; a few examples of what is to be generated."""
        return generated(model, 1, 0) if generated_count(part.source) else self._materials.data(part)

    def _examine(self, problems: list[Problem], setting: str, look: Callable[[], T]) -> T | None:
        """What is made of a setting of the data, or None and the problem with it."""
        try:
            return look()
        except InvalidValue as error:
            problems.append(error.problem(f"dataset.{setting}"))
            return None

    def _prepare(self, task: SourceTask) -> SourceResult:
        keras.utils.set_random_seed(task.seed)
        params = _params(task.algorithm, task.algorithm_config)
        profiles = _profiles(task.hardware)
        source = scaled(self._materials.source(task.model), task.data.settings.scale)
        metric = task.data.metric
        data = self._with_generated(task.data, source, task.seed)
        train, test = map(self._materials.data, parts_of(data, signature_of(source)))
        # There is nothing new in what the source itself says.
        steps = params.source_steps if data.train == task.data.train else 0
        progress = self._reporting(metric)
        source_costs = analyse(source).network().costs(profiles)
        source_accuracy = evaluate(source, test, metric)
        progress("tuning the source", 0, steps, source_costs, source_accuracy)
        teacher = tuned_source(
            source,
            _schooling(train, test, None, params, task.data.settings),
            steps,
            task.seed,
            lambda done: progress("tuning the source", done, steps, source_costs, None),
        )
        root = expanded(analyse(teacher), task.exceed, profiles, task.seed)
        return SourceResult(
            source_costs=dict(source_costs),
            source_accuracy=source_accuracy,
            metric=metric,
            teacher=self._keep(teacher),
            teacher_accuracy=evaluate(teacher, test, metric),
            root=self._keep(root),
            root_costs=dict(analyse(root).network().costs(profiles)),
            steps=steps,
            data=None if data == task.data else data,
        )

    def _with_generated(self, data: DataSource, source: keras.Model, seed: int) -> DataSource:
        """The data with what is to be generated as files among the artifacts."""
        made = {}
        for number, part in enumerate(("train", "test")):
            count = generated_count(getattr(data, part))
            if count:
                self._say(Progress(stage=f"generating {part} data", step=0, total_steps=1))
                made[part] = str(
                    self._artifacts.path(self._keep_data(generated(source, count, seed + number)))
                )
        return data.model_copy(update=made)

    def _keep_data(self, data: Dataset) -> str:
        """Put data into the artifacts."""
        content = io.BytesIO()
        arrays: dict[str, Any] = {**data.inputs, **data.targets}
        np.savez(content, **arrays)
        return self._artifacts.put(content.getvalue(), ".npz")

    def _adapt(self, task: AdaptTask) -> AdaptResult:
        params = _params(task.algorithm, task.algorithm_config)
        source = self._model(task.teacher)
        train, test = map(self._materials.data, parts_of(task.data, signature_of(source)))
        teacher = self._taught(task.teacher, train)
        executor, parent, told = self._set_out(task, params, (train, test, teacher))
        assignment = Assignment(
            model=parent,
            budget=task.budget,
            profiles=_profiles(task.hardware),
            schooling=_schooling(train, test, teacher, params, task.data.settings),
            seed=task.seed,
            source_widths=analyse(source).widths,
        )
        outcome = run_edge(
            executor,
            assignment,
            params,
            task.accuracy_target,
            self._reporting(task.data.metric),
            measure=stopwatch(task.quantizations, train),
        )
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
        settings = (task.algorithm, params, sorted(task.hardware.items()), task.data.settings)
        told = (*settings, *map(id, lesson))
        journey, self._journey = self._journey, None
        if journey is not None and (journey.checkpoint, journey.told) == (task.parent, told):
            return journey.executor, journey.network, told
        # Not on the way: TensorFlow then forgets how all that it has compiled is run.
        keras.utils.set_random_seed(task.seed)
        return executor_class(task.algorithm)(params), self._model(task.parent), told

    @activity("packaging")
    def _package(self, task: PackageTask) -> PackageResult:
        self._reporting(task.data.metric)("packaging", 0, 1, task.costs, task.accuracy)
        params = _params(task.algorithm, task.algorithm_config)
        model = self._model(task.checkpoint)
        costs = analyse(model).network().costs(_profiles(task.hardware))
        order = PackageOrder(
            job_id=task.job_id,
            goal_id=task.goal_id,
            budget=task.budget,
            accuracy_target=task.accuracy_target,
            metric=task.data.metric,
            quantization=task.quantization,
            costs=task.costs,
            accuracy=task.accuracy,
            predicted={axis: cost for axis, cost in costs.items() if hardware_of(axis)},
            training_steps=params.tune_steps,
            seed=task.seed,
        )
        train, test = map(self._materials.data, parts_of(task.data, signature_of(model)))
        learns = task.quantization.precision is Quantization.INT8_QAT
        teacher = self._taught(task.teacher, train) if learns else None
        package = make_package(model, order, _schooling(train, test, teacher, params, task.data.settings))
        files = {
            name: self._artifacts.put(content, Path(name).suffix) for name, content in package.files.items()
        }
        manifest = package.manifest
        return PackageResult(
            files=files,
            size_bytes=manifest.files[SERVE].size,
            measured=manifest.measured,
            accuracy=manifest.accuracy,
            note=manifest.note,
        )

    def _reporting(self, metric: Metric) -> Report:
        """What tells of progress, with accuracies by this metric."""

        def report(stage: str, step: int, total: int, costs: Costs, accuracy: float | None) -> None:
            progress = Progress(
                stage=stage, step=step, total_steps=total, costs=dict(costs), accuracy=accuracy, metric=metric
            )
            self._say(progress)

        return report

    @activity("saving")
    def _keep(self, model: keras.Model) -> str:
        """Put a checkpoint into the artifacts."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "checkpoint.keras"
            model.save(path)
            return self._artifacts.put(path)

    @activity("loading")
    def _load_model(self, artifact: str) -> keras.Model:
        return keras.models.load_model(self._artifacts.path(artifact), compile=False, safe_mode=True)

    def _taught(self, teacher: str, train: Dataset) -> Mapping[str, Array]:
        """The teacher's predictions for the training data, computed once for all goals of a tree."""
        if self._lesson is None or self._lesson[0] != teacher or self._lesson[1] is not train:
            model = self._model(teacher)
            outputs = Evaluation(model).outputs(train.inputs)
            self._lesson = (teacher, train, predictions(objectives_of(model, train), outputs))
        return self._lesson[2]


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
    train: Dataset,
    test: Dataset,
    teacher: Mapping[str, Array] | None,
    params: Params,
    settings: DataSettings,
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
        settings,
    )
