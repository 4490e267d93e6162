"""The result of a job as a table."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from mistify.config.data.metric import OutputScore
from mistify.costs.budget import (
    FLOPS,
    LATENCY,
    MEMORY,
    PARAMS,
    Costs,
    at_threads,
    latency_axis,
    memory_axis,
    quantity_of,
)
from mistify.costs.catalogue import HOST
from mistify.costs.quantization import Quantization
from mistify.jobs.comparison import compared_quality
from mistify.jobs.formatting import amount, duration, quality
from mistify.jobs.job import BranchFigures, Goal, GoalState, Job, Source
from mistify.jobs.report import (
    JUDGED,
    PREDICTION,
    hardware_named,
    hardware_of_goal,
    judged_by,
    latency_of,
    measured_latency,
    preparations,
    profile_of_goal,
    source_elsewhere,
    time_shares,
)
from mistify.uploads import as_written
from mistify.wording import counted, listed, names_by

#: Minimum width of the columns of goals and parents.
_NAME_WIDTH = 10

_GOAL, _PARENT, _ALGORITHM, _MET, _ACCURACY = "goal", "parent", "algorithm", "met", "accuracy"
_PRECISION, _MULTIPLY_ADDS, _PARAMS, _MEMORY = "precision", "multiply-adds", "params", "memory"
_HARDWARE, _THREADS, _PREDICTED, _MEASURED = "hardware", "threads", "latency\npredicted", "latency\nmeasured"
_TASK = "task"

#: Column of the table -> minimum width of a console that shows it.
_COLUMNS = {
    _GOAL: 0,
    _TASK: 75,
    _PARENT: 115,
    _ALGORITHM: 125,
    _PRECISION: 95,
    _MULTIPLY_ADDS: 0,
    _PARAMS: 100,
    _MEMORY: 80,
    _THREADS: 135,
    _HARDWARE: 70,
    _PREDICTED: 80,
    _MEASURED: 60,
    _ACCURACY: 0,
    _MET: 0,
}

#: Quantity -> its column.
_QUANTITIES = {FLOPS: _MULTIPLY_ADDS, PARAMS: _PARAMS, MEMORY: _MEMORY}

#: Blanks between two columns: the padding of the first, and the separator.
_BETWEEN = 2

#: Columns that are shown at any width.
_ALWAYS = (_GOAL, _ACCURACY, _MET)

#: Minimum width of a console that shows the scores of outputs as columns.
_OUTPUTS = 85

#: Maximum numbers of goals whose outputs have rows of their own, and of kinds of hardware that are named.
_FEW_GOALS, _FEW_KINDS = 5, 3


def table(job: Job, width: int = 80) -> Table:
    """Return a table of a job's source model and goals, with the columns that fit the console.

    Tasks are shown if a goal has one, precisions if one is not float32, hardware if a goal is for hardware
    other than the server's machine, and threads if they differ. Rows below the source show its latencies on
    that hardware; if there are many kinds, they are beside the goals' own ones. Each of several outputs has
    a row, or a column if there are many goals. The caption lists the number of threads of the latencies if
    no column does, the goals judged by a predicted latency, and the steps in which algorithms have prepared
    for all goals. Accuracies include the difference from the tuned source's, in points, or in per cent for
    errors.
    """
    title = f"job {job.id}: {job.state.value}, {duration(job.seconds)}"
    threads = {goal.spec.threads for goal in job.goals}
    hidden = {_THREADS} if len(threads) < 2 else set()
    in_caption = hidden or width < _COLUMNS[_THREADS]
    threads_line = _threads(job.goals) if in_caption else None
    lines = threads_line, _predicted(job.goals), escape(preparations(job.sources)), _time_shares(job.spent)
    caption = "\n".join(filter(None, lines))
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    if all(_precision(goal) == Quantization.NONE for goal in job.goals):
        hidden.add(_PRECISION)
    if not any(map(hardware_named, job.goals)):
        hidden.add(_HARDWARE)
    if not any(goal.spec.task for goal in job.goals):
        hidden.add(_TASK)
    columns = [column for column, least in _COLUMNS.items() if width >= least and column not in hidden]
    outputs = _output_columns(job) if len(job.goals) > _FEW_GOALS else []
    before_accuracy = [*_limited_metrics(job), *(outputs if width >= _OUTPUTS else ())]
    columns[columns.index(_ACCURACY) : columns.index(_ACCURACY)] = before_accuracy
    sections = list(_sections(job, min(threads, default=1), in_columns=bool(outputs)))
    ids = max([_NAME_WIDTH, *(cell_len(goal.id) for goal in job.goals)])
    rank = {**_COLUMNS, **dict.fromkeys(outputs, _OUTPUTS), **_ranks_of_limited(job)}
    widths = _fitting(columns, rank, [row for rows in sections for row in rows], ids, width)
    for column, least in widths.items():
        if column in (_GOAL, _PARENT):
            table.add_column(escape(column), overflow="fold", min_width=least)
        else:
            left = column in (_TASK, _ALGORITHM, _PRECISION, _HARDWARE, _MET)
            table.add_column(escape(column), justify="left" if left else "right", no_wrap=True)
    for rows in sections:
        for row in rows:
            if _has_figure(row, widths):
                table.add_row(*(escape(row.get(column, "")) for column in widths))
        table.add_section()
    return table


def _has_figure(row: Mapping[str, str], columns: Iterable[str]) -> bool:
    """Return whether any of the columns shows a figure in a row, rather than its name and hardware."""
    return any(row.get(column) for column in columns if column not in (_GOAL, _HARDWARE))


def _sections(job: Job, threads: int, *, in_columns: bool) -> Iterator[list[dict[str, str]]]:
    """Yield, for each batch, the rows of its source, named if there are several, and of its goals.

    Args:
        in_columns: Whether the scores of outputs are in columns instead of rows.
    """
    sources = {source.batch: source for source in job.sources}
    batches: dict[int, list[Goal]] = {batch: [] for batch in sources}
    for goal in job.goals:
        batches.setdefault(goal.batch, []).append(goal)
    for batch, goals in sorted(batches.items()):
        source = sources.get(batch)
        elsewhere: Mapping[str, float] = {}
        if source is not None:
            elsewhere = source_elsewhere(source, goals)
            named, below = len(batches) > 1, elsewhere if len(elsewhere) <= _FEW_KINDS else {}
            yield list(_source_rows(source, below, threads, with_name=named, in_columns=in_columns))
        beside = elsewhere if len(elsewhere) > _FEW_KINDS else {}
        yield [row for goal in goals for row in _rows_of(goal, source, beside, in_columns=in_columns)]


def _rows_of(
    goal: Goal, source: Source | None, beside: Mapping[str, float], *, in_columns: bool
) -> Iterable[dict[str, str]]:
    """Yield the row of a goal, and the rows of its outputs and branches.

    Args:
        beside: Hardware -> latency of the source there, to be shown beside that of the goal.
    """
    row = _goal_row(goal, source)
    if (latency := beside.get(hardware_named(goal))) is not None:
        row[_PREDICTED] += f" of {amount(LATENCY, latency)}"
    yield from _with_outputs(row, goal.output_scores, in_columns=in_columns)
    yield from _branch_rows(goal, source)


def _ranks_of_limited(job: Job) -> dict[str, int]:
    """Return the ranks of the columns with figures that goals limit: the more goals, the lower."""
    limiting: Counter[str] = Counter()
    for goal in job.goals:
        for quantity in dict.fromkeys(map(quantity_of, goal.spec.budget)):
            latency = _PREDICTED if judged_by(goal) == PREDICTION else _MEASURED
            limiting[latency if quantity == LATENCY else _QUANTITIES.get(quantity, "")] += 1
    return {column: -count for column, count in limiting.items() if column}


def _fitting(
    columns: Sequence[str],
    rank: Mapping[str, int],
    rows: Sequence[Mapping[str, str]],
    ids: int,
    width: int,
) -> dict[str, int]:
    """Return the columns that fit a console, with their minimum widths.

    The least important columns are dropped. Figures are never truncated, and ids only divided if the console
    is too narrow for them alone.

    Args:
        columns: All requested columns.
        rank: Column -> its rank, 0 if it has none; those with the highest ranks are dropped first.
        ids: The length of the longest id.
        width: The width of the console in characters.
    """
    widths = {column: ids if column in (_GOAL, _PARENT) else _width(column, rows) for column in columns}
    droppable = [column for column in columns if column not in _ALWAYS]
    for column in sorted(droppable, key=lambda column: rank.get(column, 0), reverse=True):
        if _total(widths) <= width:
            break
        del widths[column]
    widths[_GOAL] = max(_NAME_WIDTH, widths[_GOAL] - max(0, _total(widths) - width))
    return widths


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + _BETWEEN * (len(widths) - 1) + 1


def _width(column: str, rows: Iterable[Mapping[str, str]]) -> int:
    """Return the minimum width of a column that truncates no cell."""
    cells = [*column.splitlines(), *(row.get(column, "") for row in rows)]
    return max(map(cell_len, cells))


def _limited_metrics(job: Job) -> list[str]:
    """Return the columns for metrics of plug-ins that goals limit."""
    limited = {quantity_of(axis) for goal in job.goals for axis in goal.spec.budget}
    return [axis_format.label for axis_format in job.formats if axis_format.quantity in limited]


def _threads(goals: Iterable[Goal]) -> str:
    """Return the numbers of threads of latencies, with the goals if they differ."""
    named = names_by((goal.id, goal.spec.threads) for goal in goals)
    if len(named) < 2:
        return f"latencies with {counted(next(iter(named), 1), 'thread')}"
    of_goals = (f"{counted(count, 'thread')} ({listed(ids)})" for count, ids in sorted(named.items()))
    return escape(f"latencies with {', '.join(of_goals)}")


def _predicted(goals: Iterable[Goal]) -> str | None:
    """Return which goals are judged by a predicted latency; None if none is."""
    named = names_by((goal.id, hardware_of_goal(goal)) for goal in goals if judged_by(goal) == PREDICTION)
    of_goals = ", ".join(f"{listed(ids)} ({hardware})" for hardware, ids in named.items())
    if len(named) > _FEW_KINDS:
        count = counted(sum(map(len, named.values())), "goal")
        of_goals = f"{count} on {len(named)} kinds of hardware"
    return escape(f"judged by a latency that was predicted, not measured: {of_goals}") if named else None


def _time_shares(spent: Mapping[str, float]) -> str | None:
    """Return each activity's share of the time; None if no time was spent."""
    shown = ", ".join(f"{activity} {share}" for activity, share in time_shares(spent).items())
    return escape(f"where the time went: {shown}") if shown else None


def _source_rows(
    source: Source, below: Mapping[str, float], threads: int, *, with_name: bool, in_columns: bool
) -> Iterable[dict[str, str]]:
    """Yield the rows of the original source, of its outputs, and on other hardware; then of the tuned one.

    Args:
        below: Hardware -> latency of the source there, to be shown in rows of their own.
        threads: Number of threads of the latencies on the server's machine.
        with_name: Whether the rows name the model.
        in_columns: See `_sections`.
    """
    axis = latency_axis(at_threads(HOST.name, threads))
    original = {
        _GOAL: f"source {as_written(source.model)}".strip() if with_name else "source",
        **_counts(source.costs, source),
        _MEMORY: amount(MEMORY, source.costs.get(MEMORY)),
        _THREADS: str(threads),
        _PREDICTED: amount(LATENCY, source.costs.get(axis)),
        _MEASURED: amount(LATENCY, source.measured.get(axis)),
        **_plugged_in_cells(source.costs, source),
        _ACCURACY: quality(source.metric, source.accuracy),
    }
    yield from _with_outputs(original, source.output_scores, in_columns=in_columns)
    for hardware, latency in below.items():
        yield {_GOAL: f"- on {hardware}", _HARDWARE: hardware, _PREDICTED: amount(LATENCY, latency)}
    if source.tuned_accuracy is not None:
        tuned = {_GOAL: "- tuned", _ACCURACY: quality(source.metric, source.tuned_accuracy)}
        yield from _with_outputs(tuned, source.tuned_output_scores, in_columns=in_columns)


def _goal_row(goal: Goal, source: Source | None) -> dict[str, str]:
    return {
        _GOAL: goal.id,
        _TASK: str(goal.spec.task or ""),
        _PARENT: goal.parent or "source",
        _ALGORITHM: goal.algorithm or "-",
        _PRECISION: _precision(goal),
        _HARDWARE: hardware_named(goal),
        _THREADS: str(goal.spec.threads),
        **_figures(goal, goal, source),
        _MET: _met(goal),
    }


def _met(goal: Goal) -> str:
    if goal.state is GoalState.MET:
        return JUDGED[judged_by(goal)]
    return "no" if goal.state.ended else "-"


def _branch_rows(goal: Goal, source: Source | None) -> Iterable[dict[str, str]]:
    """Yield a row for each branch of a goal's package, named after its share of the goal's budget."""
    for branch in goal.branch_figures:
        yield {_GOAL: f"- {branch.share:.2f}x", **_figures(goal, branch, source)}


def _with_outputs(
    row: Mapping[str, str], scores: Sequence[OutputScore], *, in_columns: bool
) -> Iterable[dict[str, str]]:
    """Yield a row with the score of each output if there are several: in columns, or in rows below it."""
    scores = scores if len(scores) > 1 else ()
    figures = {_output_column(score): quality(score.metric, score.value) for score in scores}
    yield {**row, **figures} if in_columns else dict(row)
    for score in () if in_columns else scores:
        shown = f"{score.metric} {quality(score.metric, score.value)}"
        yield {_GOAL: f"- {score.output}", _ACCURACY: shown}


def _output_columns(job: Job) -> list[str]:
    """Return the columns for the scores of outputs; none for a single output."""
    several = (goal.output_scores for goal in job.goals if len(goal.output_scores) > 1)
    return list(dict.fromkeys(_output_column(score) for scores in several for score in scores))


def _output_column(score: OutputScore) -> str:
    return f"{score.output}\n{score.metric}"


def _figures(goal: Goal, network: Goal | BranchFigures, source: Source | None) -> dict[str, str]:
    precision = goal.spec.quantization.precision
    memory = memory_axis(precision, integer_inputs=goal.spec.quantization.integer_inputs)
    return {
        **_counts(network.achieved, source),
        **_plugged_in_cells(network.achieved, source, profile_of_goal(goal), precision),
        _MEMORY: amount(MEMORY, network.achieved.get(memory)),
        _PREDICTED: amount(LATENCY, latency_of(goal, network.achieved)),
        _MEASURED: amount(LATENCY, measured_latency(goal, network)),
        _ACCURACY: compared_quality(goal, network.accuracy, source),
    }


def _plugged_in_cells(
    costs: Costs,
    source: Source | None,
    hardware: str = HOST.name,
    precision: Quantization = Quantization.NONE,
) -> dict[str, str]:
    formats = source.formats if source else ()
    return {
        axis_format.label: amount(axis_format.quantity, axis_format.cost(costs, hardware, precision), formats)
        for axis_format in formats
    }


def _precision(goal: Goal) -> str:
    """Return the precision of a package, and the compression that was requested."""
    precision = goal.spec.quantization.precision.value
    return precision if goal.spec.compression is None else f"{precision}, {goal.spec.compression}"


def _counts(costs: Costs, source: Source | None) -> dict[str, str]:
    """Return a network's multiply-adds, with the ratio to the source's, and its parameters."""
    flops = amount(FLOPS, costs.get(FLOPS))
    if source is not None and costs.get(FLOPS) and source.costs.get(FLOPS):
        flops += f" ({costs[FLOPS] / source.costs[FLOPS]:.2f})"
    return {_MULTIPLY_ADDS: flops, _PARAMS: amount(PARAMS, costs.get(PARAMS))}
