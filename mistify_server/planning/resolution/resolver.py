"""Examining a batch of configs before anything is started: every problem at once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from mistify.config.batch import CollectiveBatch
from mistify.config.porting import AUTO
from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.parsing.validation import InvalidValue, shown, unknown_name
from mistify.plugins import plug_ins
from mistify_server.devices.naming import find_devices
from mistify_server.engines.base import Engine
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.limits import unreachable, unusable
from mistify_server.planning.resolution.data_roots import DataRoots
from mistify_server.planning.resolution.models import ModelRepository, find_data, find_model
from mistify_server.store.devices import DeviceStore
from mistify_server.tasks.messages import TaskProgress
from mistify_server.tasks.results import Inspection, Result, TaskFailure
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import Measure


def known_algorithms() -> frozenset[str]:
    """The names of the registered executors; none of them is imported."""
    return frozenset(plug_ins("mistify.executors"))


@dataclass(frozen=True)
class BatchResolver:
    """Looks up what the configs name, and has models and data inspected by a worker."""

    models: ModelRepository
    roots: DataRoots
    devices: DeviceStore
    engine: Engine

    async def examine(self, batches: Sequence[CollectiveBatch]) -> list[tuple[ResolvedBatch, Inspection]]:
        """The batches with what was found, all fit to be started.

        A problem that configs of a batch share is told of the first of them.

        Raises:
            MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET, with every problem found.
        """
        problems: list[Problem] = []
        examined = await self._examine(batches, problems, ())
        for batch, inspection in examined:
            problems += unreachable(batch.batch, inspection)
        if problems:
            raise _rejection(problems)
        return examined

    async def survey(self, batches: Sequence[CollectiveBatch]) -> list[tuple[ResolvedBatch, Inspection]]:
        """The batches with what was found, also by running the source; goals may be out of reach.

        Raises:
            MistifyError: as `examine`, but for goals that cannot be met.
        """
        problems: list[Problem] = []
        examined = await self._examine(batches, problems, ("accuracy", "step"))
        for batch, inspection in examined:
            problems += unusable(batch.batch, inspection)
        if problems:
            raise _rejection(problems)
        return examined

    async def inspect(self, batches: Sequence[ResolvedBatch]) -> dict[int, Inspection]:
        """What is found out about batches whose models and data are known, by their numbers.

        Raises:
            MistifyError: as `examine`.
        """
        problems: list[Problem] = []
        inspected = await self._inspect(batches, problems)
        if problems:
            raise _rejection(problems)
        return {batch.number: inspection for batch, inspection in inspected}

    async def _examine(
        self, batches: Sequence[CollectiveBatch], problems: list[Problem], measures: Sequence[Measure]
    ) -> list[tuple[ResolvedBatch, Inspection]]:
        """The batches about which anything could be found out, with their precisions; problems are added."""
        resolved = [self._resolve(number, batch, problems) for number, batch in enumerate(batches)]
        known = [batch for batch in resolved if batch is not None]
        inspected = await self._inspect(known, problems, measures)
        return [(batch.settled(inspection), inspection) for batch, inspection in inspected]

    async def _inspect(
        self, batches: Sequence[ResolvedBatch], problems: list[Problem], measures: Sequence[Measure] = ()
    ) -> list[tuple[ResolvedBatch, Inspection]]:
        """Those of the batches about which anything could be found out; problems are added."""
        try:
            async with asyncio.TaskGroup() as group:
                orders = [batch.inspection(measures) for batch in batches]
                tasks = [group.create_task(self.engine.run(order, _ignore)) for order in orders]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        inspected = []
        for batch, task in zip(batches, tasks, strict=True):
            inspection = _inspection(batch, task.result(), problems)
            if inspection is not None:
                inspected.append((batch, inspection))
        return inspected

    def _resolve(self, number: int, batch: CollectiveBatch, problems: list[Problem]) -> ResolvedBatch | None:
        place, count = f"[{batch.indices[0]}]", len(problems)
        algorithms = known_algorithms() | {AUTO}
        if batch.algorithm.name not in algorithms:
            given = shown(batch.algorithm.name)
            problems.append(
                Problem(f"{place}.algorithm.name", given, *unknown_name(batch.algorithm.name, algorithms))
            )
        devices = find_devices(batch, self.devices, problems)
        try:
            model = find_model(batch.model, self.models, self.roots)
        except InvalidValue as error:
            problems.append(error.problem(f"{place}.model"))
        data = {}
        for role in ("train", "test"):
            try:
                data[role] = find_data(getattr(batch.dataset, role), role, self.roots)
            except InvalidValue as error:
                problems.append(error.problem(f"{place}.dataset.{role}"))
        settings = batch.dataset.settings
        if settings.text is not None and settings.text.vocabulary is not None:
            try:
                vocabulary = str(self.roots.find(settings.text.vocabulary))
            except InvalidValue as error:
                problems.append(error.problem(f"{place}.dataset.text.vocabulary"))
            else:
                text = settings.text.model_copy(update={"vocabulary": vocabulary})
                settings = settings.model_copy(update={"text": text})
        if len(problems) > count:
            return None
        return ResolvedBatch(
            number,
            batch,
            model,
            DataSource(settings=settings, train=data["train"], test=data["test"]),
            devices,
        )


def _inspection(batch: ResolvedBatch, result: Result, problems: list[Problem]) -> Inspection | None:
    """A worker's findings, as far as it could find any; problems are added."""
    place = f"[{batch.batch.indices[0]}]"
    if not isinstance(result, Inspection | TaskFailure):
        raise MistifyError(ErrorCode.INTERNAL, f"the worker answered the inspection with {result.kind}")
    problems += [Problem(f"{place}.{subject}", *rest) for subject, *rest in result.problems]
    if isinstance(result, Inspection):
        return result if result.costs else None
    code = ErrorCode.__members__.get(result.code, ErrorCode.INTERNAL)
    if not result.problems:
        raise MistifyError(code, f"{place} could not be inspected: {result.message}")
    return None


def _rejection(problems: Sequence[Problem]) -> MistifyError:
    """All problems as one error, of the model or the dataset if they are about nothing else."""
    codes = {_code_of(problem) for problem in problems}
    error = invalid_config(problems)
    return MistifyError(codes.pop(), error.message, problems) if len(codes) == 1 else error


def _code_of(problem: Problem) -> ErrorCode:
    _, _, subject = problem.place.partition("].")
    codes = {"model": ErrorCode.INVALID_MODEL, "dataset": ErrorCode.INVALID_DATASET}
    return codes.get(subject.partition(".")[0], ErrorCode.INVALID_CONFIG)


def _ignore(_progress: TaskProgress) -> None:
    """A submission tells nothing of its progress."""
