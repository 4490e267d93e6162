"""The log of a running job, through which all its changes reach the store."""

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from mistify.jobs.job import Goal, GoalState, Job, ProgressUpdate
from mistify_server.jobs.outcomes import failed_goal
from mistify_server.jobs.store_writer import StoreWriter
from mistify_server.jobs.time_left import Part, TimeLeftEstimator
from mistify_server.store.changes import (
    Addition,
    Advanced,
    Change,
    CheckpointSaved,
    GoalChanged,
    GoalsFailed,
    JobChanged,
    PreparationSaved,
    RootSaved,
)
from mistify_server.store.jobs import JobStore
from mistify_server.store.leases import JobLease
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import Result, seconds_by_activity

_logger = logging.getLogger(__name__)

#: Minimum number of seconds between recorded updates of one stage.
UPDATE_SECONDS = 0.5

#: Maximum number of a task's updates that are kept while the store is unavailable.
_MOST_WAITING_UPDATES: Final = 100


class JobLog:
    """Goals and times of a running job, written to the store on every change.

    Args:
        job: The job in its state in the store.
        on_change: Called after every change.
        time_left: Estimates the end of the job.
        lease: The server's lease of the job; None for a job that no other process changes.
        clock: Returns seconds since an arbitrary start.

    Attributes:
        writing: Lock that is held while changes are written. Its holder sees the job in its stored state.
    """

    def __init__(
        self,
        jobs: JobStore,
        job: Job,
        on_change: Callable[[], None],
        writer: StoreWriter,
        time_left: TimeLeftEstimator,
        *,
        lease: JobLease | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job_id = job.id
        self.writing = asyncio.Lock()
        self._jobs = jobs
        self._goals = {goal.id: goal for goal in job.goals}
        self._on_change = on_change
        self._writer = writer
        self._time_left = time_left
        self._lease = lease
        self._clock = clock
        self._start = clock() - job.seconds
        self._paused_at: float | None = None
        self._spent = defaultdict(float, job.spent)

    @property
    def paused(self) -> bool:
        """Return whether the job is paused, so that time does not count as its own."""
        return self._paused_at is not None

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._start = self._clock() - self._seconds
        self._paused_at = self._clock() if paused else None

    @property
    def _seconds(self) -> float:
        """Return the seconds that the job has been running, without pauses."""
        return (self._clock() if self._paused_at is None else self._paused_at) - self._start

    @property
    def goals(self) -> list[Goal]:
        """Return the goals in the order of the configs."""
        return list(self._goals.values())

    def add(self, addition: Addition) -> None:
        """Add goals that were added to the job in the store."""
        self._goals |= {goal.id: goal for goal in addition.goals}
        self._time_left.grow(addition.plans)

    def goal(self, goal_id: str) -> Goal:
        """Return a goal."""
        return self._goals[goal_id]

    def open_goals(self, goal_ids: Sequence[str]) -> list[Goal]:
        """Return the unfinished goals."""
        return [self._goals[goal_id] for goal_id in goal_ids if not self._goals[goal_id].state.ended]

    async def note(self, goal_ids: Sequence[str], note: str) -> None:
        """Add a note to all unfinished goals that lack it."""
        async with self.writing:
            goals = [goal for goal in self.open_goals(goal_ids) if note not in goal.note]
            if goals:
                noted = (replace(goal, note="; ".join(filter(None, (goal.note, note)))) for goal in goals)
                await self.write(*map(GoalChanged, noted))

    async def record(self, *changes: Change) -> None:
        """Write changes to the store atomically, as soon as it is available.

        Raises:
            LeaseLostError: Another server has taken the job, or it was ended.
        """
        async with self.writing:
            await self.write(*changes)

    async def write(self, *changes: Change) -> None:
        """Write changes like `record`, for a caller that holds `writing`."""
        seconds, spent = self._seconds, dict(self._spent)
        await self._writer.write(
            partial(self._jobs.record, self.job_id, changes, seconds, spent, self._lease)
        )
        for change in changes:
            self._log_change(change)
            self._time_left.apply(change)
            match change:
                case GoalChanged(goal):
                    self._goals[goal.id] = goal
                case GoalsFailed(goal_ids, reason):
                    failed = (failed_goal(self._goals[goal_id], reason) for goal_id in goal_ids)
                    self._goals |= {goal.id: goal for goal in failed}
        self._on_change()

    def _log_change(self, change: Change) -> None:
        """Log a change for the server's operator."""
        about: dict[str, object] = {"job": self.job_id}
        match change:
            case JobChanged(state, reason):
                _logger.info("the job is %s%s", state.value, _because(reason), extra=about)
            case RootSaved(batch, _):
                _logger.info("the source is prepared", extra={**about, "batch": batch})
            case PreparationSaved(batch, algorithm, prepared):
                about |= {"batch": batch, "steps": prepared.steps, "seconds": round(prepared.seconds, 1)}
                _logger.info("%s has prepared", algorithm, extra=about)
            case CheckpointSaved(batch, node, result, _):
                about |= {
                    "edge": f"{batch}/{node}",
                    "steps": result.steps,
                    "seconds": round(result.seconds, 1),
                }
                _logger.info("the edge is adapted", extra=about)
            case GoalChanged(goal) if goal.state is not self._goals[goal.id].state:
                _logger.info(
                    "the goal is %s%s",
                    goal.state.value,
                    _because(goal.reason),
                    extra={**about, "goal": goal.id},
                )
            case GoalsFailed([first, *others], reason):
                about |= {"goal": first, "goals": 1 + len(others)}
                _logger.warning("goals have failed%s", _because(reason), extra=about)

    async def account(self, running: Awaitable[Result]) -> Result:
        """Await the result of a starting task, and account for its time in the next record."""
        start = self._clock()
        result = await running
        elapsed = self._clock() - start
        for activity, seconds in seconds_by_activity(result, elapsed).items():
            self._spent[activity] += seconds
        return result

    @asynccontextmanager
    async def progress_of(self, goal_ids: Sequence[str], part: Part) -> AsyncIterator[OnProgress]:
        """Yield a callback for a task's progress, which is fully recorded by the end of the block.

        The goals count as running from the first update. Updates in quick succession are dropped, unless they
        begin a stage or contain a new accuracy. While the store is unavailable, the latest updates are kept.

        Args:
            goal_ids: Ids of the goals that the task serves; empty for the source and preparations.
            part: The part of the job's work to which the task belongs.
        """
        updates, stage, recorded_at = _Updates(), None, 0.0

        def on_progress(update: ProgressUpdate) -> None:
            nonlocal stage, recorded_at
            now = self._clock()
            if update.stage == stage and update.accuracy is None and now - recorded_at < UPDATE_SECONDS:
                return
            stage, recorded_at = update.stage, now
            updates.put(update)

        recording = asyncio.create_task(self._record_updates(goal_ids, part, updates))
        try:
            yield on_progress
            updates.end()
            await recording
        finally:
            recording.cancel()
            await asyncio.wait([recording])
            self._time_left.stop(part, self._seconds)

    async def _record_updates(self, goal_ids: Sequence[str], part: Part, updates: "_Updates") -> None:
        async for update in updates:
            self._time_left.advance(part, update, self._seconds)
            async with self.writing:
                goals = self.open_goals(goal_ids)
                begun = [
                    GoalChanged(replace(goal, state=GoalState.RUNNING))
                    for goal in goals
                    if goal.state is not GoalState.RUNNING
                ]
                subjects = [goal.id for goal in goals] if goal_ids else [None]
                timed = self._with_time_left(update)
                await self.write(*begun, *(Advanced(subject, timed) for subject in subjects))

    def _with_time_left(self, update: ProgressUpdate) -> ProgressUpdate:
        estimated = self._time_left.estimate(self._seconds)
        if estimated is None:
            return update
        return replace(update, job_share=estimated.share, seconds_left=estimated.seconds_left)


class _Updates:
    """A queue of a task's latest unread updates, oldest first, that ends with the task."""

    def __init__(self) -> None:
        self._waiting: deque[ProgressUpdate] = deque(maxlen=_MOST_WAITING_UPDATES)
        self._more = asyncio.Event()
        self._ended = False

    def put(self, update: ProgressUpdate) -> None:
        self._waiting.append(update)
        self._more.set()

    def end(self) -> None:
        self._ended = True
        self._more.set()

    async def __aiter__(self) -> AsyncIterator[ProgressUpdate]:
        while self._waiting or not self._ended:
            await self._more.wait()
            while self._waiting:
                yield self._waiting.popleft()
            if not self._ended:
                self._more.clear()


def _because(reason: str) -> str:
    """Return a reason as the end of a sentence; empty without a reason."""
    return f": {reason.splitlines()[0]}" if reason else ""
