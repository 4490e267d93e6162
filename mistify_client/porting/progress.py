"""The progress of a running job: a bar for each goal on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from mistify.costs.budget import conditions_of, quantity_of
from mistify.costs.energy import ENERGY
from mistify.costs.quantization import Quantization
from mistify.jobs.formatting import duration, quality, shares
from mistify.jobs.job import STARTING, Goal, GoalState, JobEvent, ProgressUpdate, Source
from mistify.jobs.report import outcome
from mistify_client.porting.printing import print_line

#: The subject of work that concerns the whole job, such as tuning the source model.
SOURCE = "source"

#: The subject of the bar of the whole job; no goal has such an id.
_JOB = "whole job"

_STEPS_SHOWN = 10


class Display(Protocol):
    """A display of a job's progress."""

    def update(self, subject: str, progress: ProgressUpdate, source: Source | None) -> None:
        """Show progress on a goal, or on `SOURCE`; costs are shown relative to the source model's.

        Args:
            subject: The goal's id.
            source: The source of the goal, or of the job if it has only one; None if unknown.
        """

    def ended(self, goal: Goal, source: Source | None) -> None:
        """Show that a goal has ended; `source` is the goal's source."""

    def show_line(self, line: str) -> None:
        """Show a line of text."""


@contextmanager
def display(console: Console) -> Iterator[Display]:
    """Yield the display that suits a console; a terminal that cannot move its cursor gets lines."""
    if console.is_terminal and not console.is_dumb_terminal:
        with _bars(console) as bars:
            yield BarDisplay(bars)
    else:
        yield LineDisplay(partial(print_line, console))


@contextmanager
def activity_shown(console: Console, activity: str) -> Iterator[Callable[[str], None]]:
    """Show an activity of unknown length with the time it has taken, on a terminal only; then remove it.

    Yields:
        A function that shows a line of text, on any console.
    """
    hidden = not console.is_terminal or console.is_dumb_terminal
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=hidden) as shown:
        shown.add_task(escape(activity), total=None)
        yield partial(print_line, console)


def once_for_equal_goals(events: Iterable[JobEvent]) -> Iterator[JobEvent]:
    """Yield events, except progress that the previous event has already reported for another goal.

    Equal goals share a network, and each has its own event for the same progress.
    """
    before: JobEvent | None = None
    for event in events:
        if not (
            before is not None
            and isinstance(event.event, ProgressUpdate)
            and (event.unix_ms, event.event) == (before.unix_ms, before.event)
        ):
            yield event
        before = event


def source_behind(goal_id: str | None, goals: Mapping[str, Goal], sources: Sequence[Source]) -> Source | None:
    """Return the source to which an event refers; None if unknown.

    Args:
        goal_id: None for work on a source, which does not name its batch.
        goals: Id -> goal of the job, as far as known.
    """
    goal = goals.get(goal_id or "")
    batches = {each.batch for each in (goals.values() if goal is None else [goal])}
    return next((source for source in sources if batches == {source.batch}), None)


class BarDisplay:
    """A bar for the job and each goal in progress; ended goals become lines above the bars.

    The bar of a goal counts its training steps; other stages do not change it.
    """

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def update(self, subject: str, progress: ProgressUpdate, source: Source | None) -> None:
        """Implement `Display`."""
        if progress.job_share is not None and progress.seconds_left is not None:
            left = f"about {duration(progress.seconds_left)} left"
            self._bars.update(self._task(_JOB), completed=progress.job_share, total=1.0, stage=left)
        if subject not in self._tasks:
            self._remove(SOURCE)
        trained = progress.total_steps > 1
        self._bars.update(
            self._task(subject),
            completed=progress.step if trained else None,
            total=progress.total_steps if trained else None,
            stage=escape(_stage(progress)),
            figures=escape(_figures(progress, progress.costs, source)),
        )

    def ended(self, goal: Goal, source: Source | None) -> None:
        """Implement `Display`."""
        self._remove(SOURCE)
        self._remove(goal.id)
        self.show_line(_ending(goal, source))

    def show_line(self, line: str) -> None:
        """Implement `Display`."""
        print_line(self._bars.console, line)

    def _task(self, subject: str) -> TaskID:
        if subject not in self._tasks:
            self._tasks[subject] = self._bars.add_task(escape(subject), total=None, stage="", figures="")
        return self._tasks[subject]

    def _remove(self, subject: str) -> None:
        if subject in self._tasks:
            self._bars.remove_task(self._tasks.pop(subject))


class LineDisplay:
    """Prints a line when a stage begins or another tenth of its steps is done.

    The start of work is printed only if it is the first. Several algorithms may prepare at the same time.
    """

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line = print_line
        self._shown: dict[str, dict[str, int]] = {}

    def update(self, subject: str, progress: ProgressUpdate, source: Source | None) -> None:
        """Implement `Display`."""
        done, shown = (
            _STEPS_SHOWN * progress.step // max(progress.total_steps, 1),
            self._shown.get(subject, {}),
        )
        if shown.get(progress.stage) == done or (progress.stage == STARTING and shown):
            return
        self._shown[subject] = {**shown, progress.stage: done}
        figures = _figures(progress, progress.costs, source)
        self.show_line(f"{subject}: {_stage(progress)}" + (f", {figures}" if figures else ""))

    def ended(self, goal: Goal, source: Source | None) -> None:
        """Implement `Display`."""
        self.show_line(_ending(goal, source))

    def show_line(self, line: str) -> None:
        """Implement `Display`."""
        self._print_line(line)


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        TextColumn("{task.fields[stage]}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _stage(progress: ProgressUpdate) -> str:
    steps = f" {progress.step}/{progress.total_steps}" if progress.total_steps > 1 else ""
    return f"{progress.stage}{steps}"


def _figures(of: Goal | ProgressUpdate, costs: Mapping[str, float], source: Source | None) -> str:
    """Return the accuracy and the costs as text; energies, which follow the other costs, only if limited.

    Costs of a goal are those at the precision of its package, in which they are limited.
    """
    limited: Collection[str] = ()
    precisions = {*Quantization}
    if isinstance(of, Goal):
        limited = of.spec.budget
        precisions = {Quantization.NONE, of.spec.quantization.precision.stored_as}
    costs = {
        axis: cost
        for axis, cost in costs.items()
        if axis in limited
        or (quantity_of(axis) != ENERGY.quantity and conditions_of(axis).precision in precisions)
    }
    parts = [f"{of.metric} {quality(of.metric, of.accuracy)}"] if of.accuracy is not None else []
    parts += [shares(costs, source)] if source is not None and costs else []
    return ", ".join(filter(None, parts))


def _ending(goal: Goal, source: Source | None) -> str:
    figures = _figures(goal, goal.achieved, source)
    reason = goal.reason if goal.state is not GoalState.MET else ""
    return f"{goal.id}: " + ", ".join(filter(None, [outcome(goal), reason, figures]))
