"""The goals of a job at a glance: one line per goal, the limit closest to being exceeded first."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mistify.config.data.metric import Metric
from mistify.costs.axes import built_in_formats
from mistify.costs.budget import LATENCY, SIZE, size_axis
from mistify.costs.quantization import Quantization
from mistify.jobs.formatting import amount, duration, quality
from mistify.jobs.job import BranchFigures, Goal, Job, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.report import hardware_named, latency_of, measured_latency, speedups
from mistify.uploads import as_written
from mistify.wording import counted
from mistify_server.web.pages.goal_notes import Note, numbered_notes
from mistify_server.web.pages.goal_table import (
    Column,
    cost_in,
    figure_of,
    limits_of,
    quantity_columns,
    score_of,
)
from mistify_server.web.pages.limit_use import LimitUse, limit_uses

#: What the pages call the hardware that measures packages.
_HERE: Final = "this server"


@dataclass(frozen=True)
class Heading:
    """A column of the table.

    Attributes:
        key: Its name in addresses.
        number: Whether it has numbers, which are aligned on the right.
        shown: Whether it is shown until the reader chooses columns.
    """

    key: str
    title: str
    number: bool = False
    shown: bool = True


@dataclass(frozen=True)
class Cell:
    """A value of a line.

    Attributes:
        aside: A remark on the value.
        order: The value by which lines are sorted; None if it is unknown.
        missed: Whether it misses its limit or target.
    """

    text: str
    aside: str = ""
    order: float | None = None
    missed: bool = False


@dataclass(frozen=True)
class SourceLine:
    """The line of a source, before or after its tuning."""

    name: str
    cells: Sequence[Cell]


@dataclass(frozen=True)
class GoalLine:
    """The line of a goal.

    Attributes:
        limits: The costs that it limits, the one closest to its limit first.
        cells: A cell for each heading.
        notes: Numbers of the notes on it.
    """

    goal: Goal
    limits: Sequence[LimitUse]
    cells: Sequence[Cell]
    notes: Sequence[int]


@dataclass(frozen=True)
class JobTable:
    """The table of a job, with the notes on its goals."""

    headings: Sequence[Heading]
    sources: Sequence[SourceLine]
    goals: Sequence[GoalLine]
    notes: Sequence[Note]

    @property
    def states(self) -> Mapping[str, int]:
        """Number of goals by state."""
        return Counter(line.goal.state.value for line in self.goals)


def job_table(job: Job) -> JobTable:
    """Return the table of a job; if there are several sources, they are labelled with their models."""
    columns = [
        column
        for column in quantity_columns(job, (*built_in_formats(), *job.formats))
        if column.format.quantity not in (LATENCY, SIZE)
    ]
    outputs = _outputs(job)
    has_tasks = any(goal.spec.task is not None for goal in job.goals)
    models = _models(job)
    notes = numbered_notes(job.goals)
    of_goal: dict[str, list[int]] = {}
    for number, note in enumerate(notes, 1):
        for goal_id in note.goals:
            of_goal.setdefault(goal_id, []).append(number)
    lines = []
    for goal in job.goals:
        cells = [*_main_cells(goal, job.source_of(goal)), *_other_cells(goal, columns, outputs)]
        if has_tasks:
            cells.append(Cell(str(goal.spec.task or "all")))
        if models:
            cells.append(Cell(models.get(goal.batch, "")))
        lines.append(GoalLine(goal, limit_uses(goal, job.formats), cells, of_goal.get(goal.id, ())))
    headings = list(_headings(job, columns, outputs, has_tasks=has_tasks))
    if models:
        headings.append(Heading("model", "model"))
    return JobTable(headings, list(_source_lines(job, columns, outputs, len(headings))), lines, notes)


def _headings(
    job: Job, columns: Sequence[Column], outputs: Sequence[tuple[str, Metric]], *, has_tasks: bool
) -> Iterator[Heading]:
    metrics = {goal.metric.value for goal in job.goals}
    yield Heading("score", metrics.pop() if len(metrics) == 1 else "score", number=True)
    yield Heading("size", "size", number=True)
    yield Heading("latency", "latency", number=True)
    yield Heading("hardware", "hardware")
    yield Heading("speedup", "speedup", number=True, shown=False)
    for column in columns:
        yield Heading(column.format.name, column.title, number=True, shown=False)
    for output, metric in outputs:
        yield Heading(f"{output}.{metric.value}", f"{output}, {metric.value}", number=True, shown=False)
    for key in ("precision", "algorithm", "from", "time"):
        yield Heading(key, key, number=key == "time", shown=False)
    if has_tasks:
        yield Heading("task", "task")


def _main_cells(goal: Goal, source: Source | None) -> Iterator[Cell]:
    score = score_of(goal, goal.accuracy, source)
    better = None if goal.accuracy is None else goal.accuracy * (1 if goal.metric.is_share else -1)
    yield Cell(score.reached, score.limit, better, score.missed)
    size = goal.achieved.get(size_axis(goal.spec.quantization.precision))
    yield Cell(amount(SIZE, size), order=size)
    measured = measured_latency(goal, goal)
    latency = latency_of(goal, goal.achieved) if measured is None else measured
    evidence = "" if latency is None else "predicted" if measured is None else "measured"
    yield Cell(amount(LATENCY, latency), evidence, latency)
    yield Cell(_hardware(goal))
    faster = speedups(goal, goal, source)
    ratio = faster["speedup"] if measured is None else faster["measured_speedup"]
    yield Cell("-" if ratio is None else f"{ratio:.1f}x", order=ratio)


def _other_cells(
    goal: Goal, columns: Sequence[Column], outputs: Sequence[tuple[str, Metric]]
) -> Iterator[Cell]:
    limits = limits_of(goal)
    for column in columns:
        figure = figure_of(goal, goal, column, limits)
        cost = cost_in(goal, goal, column)
        yield Cell(figure.reached, figure.limit, cost, figure.missed)
    scores = {(score.output, score.metric): score.value for score in goal.output_scores}
    yield from (_score_cell(metric, scores.get((output, metric))) for output, metric in outputs)
    precision = goal.spec.quantization.precision
    yield Cell("float32" if precision is Quantization.NONE else precision.value)
    yield Cell(goal.algorithm or "-")
    yield Cell(goal.parent or "source")
    yield Cell(duration(goal.seconds) if goal.seconds else "-", order=goal.seconds)


def _models(job: Job) -> Mapping[int, str]:
    """Return the model of each batch; empty for a single batch."""
    several = len({*(source.batch for source in job.sources), *(goal.batch for goal in job.goals)}) > 1
    return {source.batch: as_written(source.model) for source in job.sources} if several else {}


def _source_lines(
    job: Job, columns: Sequence[Column], outputs: Sequence[tuple[str, Metric]], width: int
) -> Iterator[SourceLine]:
    threads = min((goal.spec.threads for goal in job.goals), default=1)
    untuned = Goal("", 0, PackageSpec({}, threads=threads))  # on the server's machine, in float32
    models = _models(job)
    for source in job.sources:
        model = f" {models[source.batch]}" if models else ""
        network = BranchFigures(1.0, source.costs, source.measured, 0.0)
        measured = measured_latency(untuned, network)
        latency = latency_of(untuned, source.costs) if measured is None else measured
        evidence = "" if latency is None else "predicted" if measured is None else "measured"
        scores = {(score.output, score.metric): score.value for score in source.output_scores}
        cells = [
            _score_cell(source.metric, source.accuracy),
            Cell(amount(SIZE, source.costs.get(SIZE))),
            Cell(amount(LATENCY, latency), evidence),
            Cell(_hardware(untuned)),
            Cell(""),
            *(Cell(figure_of(untuned, network, column, {}).reached) for column in columns),
            *(_score_cell(metric, scores.get((output, metric))) for output, metric in outputs),
            Cell("float32"),
        ]
        yield SourceLine(f"source{model}", _filled(cells, width))
        if source.tuned_accuracy is not None:
            scores = {(score.output, score.metric): score.value for score in source.tuned_output_scores}
            tuned = [
                _score_cell(source.metric, source.tuned_accuracy),
                *[Cell("")] * (4 + len(columns)),
                *(_score_cell(metric, scores.get((output, metric))) for output, metric in outputs),
            ]
            yield SourceLine(f"tuned source{model}", _filled(tuned, width))


def _filled(cells: Sequence[Cell], width: int) -> list[Cell]:
    return [*cells, *[Cell("")] * (width - len(cells))]


def _outputs(job: Job) -> list[tuple[str, Metric]]:
    """Return the outputs of a job's packages with their metrics; none if there is only one."""
    outputs = dict.fromkeys(
        (score.output, score.metric) for goal in job.goals for score in goal.output_scores
    )
    return [*outputs] if len(outputs) > 1 else []


def _score_cell(metric: Metric, score: float | None) -> Cell:
    return Cell(
        quality(metric, score), order=None if score is None else score * (1 if metric.is_share else -1)
    )


def _hardware(goal: Goal) -> str:
    named = hardware_named(goal)
    if named or goal.spec.threads == 1:
        return named or _HERE
    return f"{_HERE} with {counted(goal.spec.threads, 'thread')}"
