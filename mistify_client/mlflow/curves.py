"""The training curves of goals, and the times of their work, from the events of a job."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mistify.jobs.job import GoalState, JobEvent, JobState, ProgressUpdate


@dataclass(frozen=True)
class CurvePoint:
    """A figure at a training step.

    Attributes:
        sequence: The number of its event.
        step: The training step, counted over all tasks of the goal.
    """

    sequence: int
    unix_ms: int
    step: int
    name: str
    value: float


@dataclass
class Timeline:
    """The work on a goal, or on the whole job.

    Attributes:
        began: When the work began, in milliseconds since 1970; None if it has not.
        ended: When it ended; None while it goes on.
        points: The training curve; empty for the job.
        last: The number of the last event.
    """

    began: int | None = None
    ended: int | None = None
    points: list[CurvePoint] = field(default_factory=list)
    last: int = 0
    _before: int = 0
    _step: int = 0

    def add(self, event: JobEvent) -> None:
        """Take the next event into account."""
        self.last = event.sequence
        match event.event:
            case GoalState.WAITING:  # added later
                pass
            case JobState() | GoalState() as state:
                self.began = event.unix_ms if self.began is None else self.began
                self.ended = event.unix_ms if state.ended else None
            case ProgressUpdate() as update if update.on_curve:
                if update.step < self._step:  # a retried task, or another one, counts from 0
                    self._before += self._step
                self._step = update.step
                step = self._before + update.step
                self.points += [
                    CurvePoint(event.sequence, event.unix_ms, step, name, value)
                    for name, value in _figures(update)
                ]


def timelines(events: Iterable[JobEvent]) -> dict[str | None, Timeline]:
    """Return the timeline of each goal, and of the job (None), as far as there are events about it."""
    by_goal: dict[str | None, Timeline] = {}
    for event in events:
        if event.goal_id is None and isinstance(event.event, ProgressUpdate):
            continue  # about the source of one of its batches
        by_goal.setdefault(event.goal_id, Timeline()).add(event)
    return by_goal


def _figures(update: ProgressUpdate) -> Iterator[tuple[str, float]]:
    if update.loss is not None:
        yield "training/loss", update.loss
    if update.accuracy is not None:
        yield f"validation/{update.metric.value}", update.accuracy
    for axis, multiple in update.relative_costs.items():
        yield f"cost/{axis}", multiple
    for axis, weight in update.structure_loss_weights.items():
        yield f"weight/{axis}", weight
