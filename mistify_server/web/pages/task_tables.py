"""Tables of tasks and limits: the goals of a job, and what can be expected of further ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mistify.costs.axes import built_in_formats
from mistify.costs.budget import FLOPS, LATENCY, MEMORY, quantity_of, source_axis
from mistify.costs.formats import AxisFormat, format_of
from mistify.jobs.formatting import amount, label
from mistify.jobs.job import Goal, Job, Source
from mistify.scenarios.served import ServedTasks
from mistify_server.jobs.served import ServedBatch
from mistify_server.web.pages.goal_table import AT_LEAST, AT_MOST
from mistify_server.web.pages.scenario_form import query_of

#: Quantities of networks that are expected within each limit.
_EXPECTED_COSTS = (FLOPS, MEMORY, LATENCY)


@dataclass(frozen=True)
class TaskRow:
    """The goals of a task, by their limits [columns]."""

    task: str
    goals: Sequence[Sequence[Goal]]


@dataclass(frozen=True)
class TaskTable:
    """The goals of a job by task and by limits.

    Attributes:
        columns: The limits, as text.
    """

    columns: Sequence[str]
    rows: Sequence[TaskRow]


@dataclass(frozen=True)
class ExpectedRow:
    """A task with the scores expected within each limit, and with its goals.

    Attributes:
        query: The query of a page whose form has the task filled in.
        trained: Whether it is a trained task; sets of classes always count as trained.
        scores: Expected scores [limits]; none for a task that was not scored.
    """

    task: str
    query: str
    trained: bool
    scores: Sequence[float]
    goals: Sequence[Goal]


@dataclass(frozen=True)
class ExpectedTable:
    """The tasks that a batch serves, by limit.

    Attributes:
        limits: Largest shares of units that networks have.
        costs: Axis as text -> mean costs as shares of the source's [limits].
        rows: Tasks with goals come first.
        means: Mean scores of trained tasks [limits].
    """

    limits: Sequence[float]
    costs: Mapping[str, Sequence[float]]
    rows: Sequence[ExpectedRow]
    means: Sequence[float]


def task_table(job: Job) -> TaskTable | None:
    """Return the goals of a job by task and by limits; None if they have fewer than two tasks."""
    by_task: dict[str, list[Goal]] = {}
    for goal in job.goals:
        if goal.spec.task is not None:
            by_task.setdefault(str(goal.spec.task), []).append(goal)
    if len(by_task) < 2:
        return None
    columns = list(dict.fromkeys(_limits(job, goal) for goals in by_task.values() for goal in goals))
    rows = [
        TaskRow(task, [[goal for goal in goals if _limits(job, goal) == column] for column in columns])
        for task, goals in by_task.items()
    ]
    return TaskTable(columns, rows)


def expected_table(job: Job, batch: ServedBatch) -> ExpectedTable:
    """Return the tasks that a batch of a job serves, with the scores expected within each limit."""
    tasks, quality = batch.tasks, batch.tasks.quality
    limits = quality.listed_limits()
    source = next((source for source in job.sources if source.batch == batch.number), None)
    rows = []
    for task, words, goals in _asked(job, batch):
        scores = [score for limit in limits if (score := quality.score(task, limit)) is not None]
        trained = bool(tasks.classes) or tasks.space.is_trained(tasks.space.parse(words))
        rows.append(ExpectedRow(task, query_of(batch, words), trained, scores, goals))
    means = [quality.expected(limit) for limit in limits]
    return ExpectedTable(limits, dict(_shares(tasks, source, limits)), rows, means)


def _limits(job: Job, goal: Goal) -> str:
    """Return the limits of a goal as text, whatever the precision."""
    formats = (*built_in_formats(), *job.formats)
    limits = (
        f"{label(source_axis(axis), formats)} {_sign(axis, formats)} {amount(axis, limit, formats)}"
        for axis, limit in goal.spec.budget.items()
    )
    return ", ".join(limits)


def _sign(axis: str, formats: Sequence[AxisFormat]) -> str:
    return AT_LEAST if format_of(axis, formats).inverse else AT_MOST


def _asked(job: Job, batch: ServedBatch) -> Iterator[tuple[str, Sequence[str], Sequence[Goal]]]:
    """Yield the tasks with goals, then the other trained ones, each with its words and its goals."""
    goals: dict[str, list[Goal]] = {}
    words: dict[str, Sequence[str]] = {}
    for goal in job.goals:
        if goal.batch == batch.number and (task := goal.spec.task) is not None:
            name = ", ".join(task.properties or task.classes)
            words[name] = task.properties or task.classes
            goals.setdefault(name, []).append(goal)
    for name in batch.tasks.quality.tasks:
        words.setdefault(name, name.split(", "))
    yield from ((name, words[name], goals.get(name, ())) for name in words)


def _shares(
    tasks: ServedTasks, source: Source | None, limits: Sequence[float]
) -> Iterator[tuple[str, list[float]]]:
    """Yield some axes in float32 with the mean costs as shares of the source's [limits]."""
    known = {} if source is None else source.costs
    for quantity in _EXPECTED_COSTS:
        for axis in tasks.costs:
            if quantity_of(axis) == quantity and axis == source_axis(axis) and known.get(axis):
                yield label(axis), [tasks.cost(axis, limit) / known[axis] for limit in limits]
