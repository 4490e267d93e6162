"""The goals of a job as a table that compares the costs and scores of packages with the requested ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import OVERALL
from mistify.costs.axes import built_in_formats
from mistify.costs.budget import FLOPS, LATENCY, MEMORY, PARAMS, quantity_of
from mistify.costs.formats import AxisFormat, format_of
from mistify.jobs.comparison import compared_quality
from mistify.jobs.formatting import amount, quality
from mistify.jobs.job import BranchFigures, Goal, Job, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.report import (
    PREDICTION,
    hardware_named,
    judged_by,
    latency_of,
    measured_latency,
    profile_of_goal,
    source_elsewhere,
)
from mistify.uploads import as_written

#: Quantities in every table, in this order; the quantities of other limits follow.
_ALWAYS: Final = (FLOPS, PARAMS, MEMORY, LATENCY)

#: Signs in front of limits and targets.
AT_MOST: Final = "\N{LESS-THAN OR EQUAL TO}"
AT_LEAST: Final = "\N{GREATER-THAN OR EQUAL TO}"


@dataclass(frozen=True)
class Column:
    """A column for a quantity; predicted and measured latency have separate columns."""

    title: str
    format: AxisFormat
    measured: bool = False


@dataclass(frozen=True)
class Figure:
    """A cost or score, its limit or target (empty without one), and whether it misses that."""

    reached: str
    limit: str = ""
    missed: bool = False


@dataclass(frozen=True)
class OutputFigure:
    """The score of an output by one of its metrics; `name` has both."""

    name: str
    score: Figure


@dataclass(frozen=True)
class Row:
    """A row for a package, branch or source: a figure for each column, a score, and those of its outputs."""

    name: str
    figures: Sequence[Figure]
    score: Figure
    outputs: Sequence[OutputFigure] = ()


@dataclass(frozen=True)
class GoalRows:
    """The rows of a goal: the package, then its branches."""

    goal: Goal
    package: Row
    branches: Sequence[Row]


@dataclass(frozen=True)
class BatchRows:
    """Rows for the source of a batch, before and after tuning, and for each of its goals.

    Attributes:
        elsewhere: Hardware other than the server's machine -> latency of the source there.
    """

    source: Sequence[Row]
    elsewhere: Mapping[str, str]
    goals: Sequence[GoalRows]


@dataclass(frozen=True)
class GoalTable:
    """The rows of all batches of a job."""

    columns: Sequence[Column]
    batches: Sequence[BatchRows]


def goal_table(job: Job) -> GoalTable:
    """Return the table of a job; if there are several sources, they are labelled with their models."""
    columns = list(quantity_columns(job, (*built_in_formats(), *job.formats)))
    threads = min((goal.spec.threads for goal in job.goals), default=1)
    sources = {source.batch: source for source in job.sources}
    numbers = sorted({*sources, *(goal.batch for goal in job.goals)})
    batches = []
    for number in numbers:
        source = sources.get(number)
        goals = [goal for goal in job.goals if goal.batch == number]
        named = f"source {as_written(source.model)}".strip() if source and len(numbers) > 1 else "source"
        latencies = source_elsewhere(source, goals) if source else {}
        batches.append(
            BatchRows(
                list(_source_rows(source, named, threads, columns)) if source else [],
                {hardware: amount(LATENCY, latency) for hardware, latency in latencies.items()},
                [_goal_rows(goal, source, columns) for goal in goals],
            )
        )
    return GoalTable(columns, batches)


def quantity_columns(job: Job, formats: Sequence[AxisFormat]) -> Iterator[Column]:
    """Yield the columns for the quantities that are always shown, then for those of other limits."""
    limited = {quantity_of(axis): None for goal in job.goals for axis in goal.spec.budget}
    for quantity in dict.fromkeys([*_ALWAYS, *limited]):
        axis_format = format_of(quantity, formats)
        if quantity == LATENCY:
            yield Column("predicted latency", axis_format)
            yield Column("measured latency", axis_format, measured=True)
        else:
            yield Column(axis_format.label, axis_format)


def _source_rows(source: Source, name: str, threads: int, columns: Sequence[Column]) -> Iterator[Row]:
    untuned = Goal("", 0, PackageSpec({}, threads=threads))  # on the server's machine, in float32
    network = BranchFigures(1.0, source.costs, source.measured, 0.0)
    figures = [figure_of(untuned, network, column, {}) for column in columns]
    outputs = list(_output_figures(source.output_scores, {}))
    yield Row(name, figures, Figure(quality(source.metric, source.accuracy)), outputs)
    if source.tuned_accuracy is not None:
        score = Figure(quality(source.metric, source.tuned_accuracy))
        outputs = list(_output_figures(source.tuned_output_scores, {}))
        yield Row("tuned", [Figure("")] * len(columns), score, outputs)


def _goal_rows(goal: Goal, source: Source | None, columns: Sequence[Column]) -> GoalRows:
    limits = limits_of(goal)
    targets = {(each.output, each.metric): each.value for each in goal.spec.targets if each.output != OVERALL}
    package = Row(
        goal.id,
        [figure_of(goal, goal, column, limits) for column in columns],
        score_of(goal, goal.accuracy, source),
        list(_output_figures(goal.output_scores, targets)),
    )
    branches = [
        Row(
            f"{branch.share:.2f}x",
            [figure_of(goal, branch, column, {}) for column in columns],
            Figure(compared_quality(goal, branch.accuracy, source)),
        )
        for branch in goal.branch_figures
    ]
    return GoalRows(goal, package, branches)


def _output_figures(
    scores: Sequence[OutputScore], targets: Mapping[tuple[str, Metric], float]
) -> Iterator[OutputFigure]:
    """Yield the score of each metric of an output; for a single output, only if it has a target."""
    reached = {(score.output, score.metric): score.value for score in scores}
    for output, metric in dict.fromkeys([*(reached if len(reached) > 1 else ()), *targets]):
        key = output, metric
        yield OutputFigure(f"{output}, {metric}", _compared(metric, reached.get(key), targets.get(key)))


def score_of(goal: Goal, accuracy: float | None, source: Source | None) -> Figure:
    """Return the score of a goal's package, with its change and its target."""
    target = next((each.value for each in goal.spec.targets if each.output == OVERALL), None)
    figure = _compared(goal.metric, accuracy, target)
    return replace(figure, reached=compared_quality(goal, accuracy, source))


def _compared(metric: Metric, score: float | None, target: float | None) -> Figure:
    sign = AT_LEAST if metric.is_share else AT_MOST
    limit = "" if target is None else f"{sign} {quality(metric, target)}"
    return Figure(quality(metric, score), limit, score is not None and not metric.reaches(score, target))


def limits_of(goal: Goal) -> dict[tuple[str, bool], float]:
    """Return the limits of a goal by quantity; a limit on latency applies to the figure that decides."""
    measured = judged_by(goal) != PREDICTION
    return {
        (quantity, measured and quantity == LATENCY): limit
        for axis, limit in goal.spec.budget.items()
        for quantity in [quantity_of(axis)]
    }


def figure_of(
    goal: Goal, network: Goal | BranchFigures, column: Column, limits: Mapping[tuple[str, bool], float]
) -> Figure:
    """Return the cost of a network in a column, with its limit."""
    quantity, formats = column.format.quantity, [column.format]
    cost, limit = cost_in(goal, network, column), limits.get((quantity, column.measured))
    sign = AT_LEAST if column.format.inverse else AT_MOST
    hardware = hardware_named(goal) if cost is not None and _is_prediction(column) else ""
    return Figure(
        " on ".join(filter(None, (amount(quantity, cost, formats), hardware))),
        "" if limit is None else f"{sign} {amount(quantity, limit, formats)}",
        cost is not None and limit is not None and cost > limit,
    )


def _is_prediction(column: Column) -> bool:
    return column.format.quantity == LATENCY and not column.measured


def cost_in(goal: Goal, network: Goal | BranchFigures, column: Column) -> float | None:
    """Return the cost of a network in a column; None if it is unknown."""
    if column.measured:
        return measured_latency(goal, network)
    if column.format.quantity == LATENCY:
        return latency_of(goal, network.achieved)
    return column.format.cost(network.achieved, profile_of_goal(goal), goal.spec.quantization.precision)
