"""Inspection of resolved batches: workers load models and data, and measure each source once."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import ProgressUpdate
from mistify_server.engines.base import TaskEngine
from mistify_server.planning.batch import InspectedBatch, ResolvedBatch
from mistify_server.planning.known_inspections import KnownInspections
from mistify_server.planning.latest import LatestValues
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.results import Inspection, Result, TaskFailure
from mistify_server.tasks.tasks import InspectTask, Measure

#: Number of inspections that a lookup finds without their tasks.
_LATEST: Final = 8


@dataclass(frozen=True)
class BatchInspector:
    """Has an engine's workers inspect batches, unless an inspection is already known.

    Attributes:
        in_turn: Begins an inspection when it is the turn of the current caller, and returns its result.
    """

    engine: TaskEngine
    known: KnownInspections
    in_turn: Callable[[Callable[[], Awaitable[Result]]], Awaitable[Result]]

    async def inspect(
        self, batches: Sequence[ResolvedBatch], problems: ProblemCollector, measures: Collection[Measure] = ()
    ) -> list[InspectedBatch]:
        """Return the batches with sources that could be measured.

        Args:
            problems: Collects the mistakes in models, data and settings.
            measures: Measurements that require running the sources.

        Raises:
            MistifyError: A worker failed for a reason unrelated to the configs.
        """
        results = await self._run([batch.inspect_task(measures) for batch in batches])
        inspections = (
            _inspection_of(batch, result, problems) for batch, result in zip(batches, results, strict=True)
        )
        return [
            InspectedBatch(batch, inspection)
            for batch, inspection in zip(batches, inspections, strict=True)
            if inspection is not None
        ]

    def lookup(self) -> Callable[[ResolvedBatch, ProblemCollector], InspectedBatch | None]:
        """Return a function that inspects a batch as `inspect` does, and returns None if a worker has to.

        See `KnownInspections.lookup`.
        """
        known = self.known.lookup()
        latest: LatestValues[tuple[object, ...], Inspection | None] = LatestValues(_LATEST)

        def inspected(batch: ResolvedBatch, problems: ProblemCollector) -> InspectedBatch | None:
            inspection = latest.get(batch.inspected_parts, lambda: known(batch.inspect_task()))
            made = None if inspection is None else _inspection_of(batch, inspection, problems)
            return None if made is None else InspectedBatch(batch, made)

        return inspected

    async def _run(self, tasks: Sequence[InspectTask]) -> list[Result]:
        """Run all tasks concurrently; the first exception cancels the others."""
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(self._result(task)) for task in tasks]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return [task.result() for task in running]

    async def _result(self, task: InspectTask) -> Result:
        return await self.known.result(task, lambda: self.in_turn(lambda: self.engine.run(task, _ignore)))


def _inspection_of(batch: ResolvedBatch, result: Result, problems: ProblemCollector) -> Inspection | None:
    """Return the inspection if the source could be measured, and collect its problems."""
    place = f"[{batch.batch.indices[0]}]"
    if not isinstance(result, Inspection | TaskFailure):
        raise MistifyError(ErrorCode.INTERNAL, f"the worker answered the inspection with {result.kind}")
    problems.add(replace(problem, place=f"{place}.{problem.place}") for problem in result.problems)
    if isinstance(result, Inspection):
        return result if result.costs else None
    if not result.problems:
        code = ErrorCode.__members__.get(result.code, ErrorCode.INTERNAL)
        raise MistifyError(code, f"{place} could not be inspected: {result.message}")
    return None


def _ignore(_progress: ProgressUpdate) -> None:
    """Ignore progress, because nobody watches an inspection."""
