"""A plan as a tree for people, and as plain data for programs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.tree import Tree

from mistify.config.data.metric import Metric
from mistify.costs.budget import FLOPS, MEMORY, PARAMS, Costs
from mistify.jobs.formatting import amounts, duration, shares
from mistify.jobs.job import Source
from mistify.jobs.plan import (
    Interval,
    OutOfReach,
    OutputEstimate,
    Plan,
    PlannedBatch,
    PlannedEdge,
    PlannedPreparation,
)
from mistify.uploads import as_written
from mistify.wording import counted, listed, names_by

#: Shown for every network, in addition to the axes that its goals limit.
_SHOWN = (FLOPS, PARAMS, MEMORY)

#: Maximum number of networks in a plan that is shown with all costs and with the reasons for choices.
_MOST_WITH_REASONS = 12


def plan_report(plan: Plan) -> dict[str, object]:
    """Return a plan as plain data.

    A prediction lies between `low` and `high` with a probability of 95 %, and above `middle` with 50 %. Null
    stands for an unknown value; `parent` is null for a network that starts from the source. Costs are in the
    units of `report.json`; seconds are rough estimates.
    """
    return {
        "seconds": plan.seconds,
        "batches": [_batch_report(batch) for batch in plan.batches],
        "out_of_reach": [asdict(limit) for limit in plan.out_of_reach],
    }


#: Note on batches whose images are flipped.
_FLIPS: Final = (
    "images are flipped for training, because the model recognises flipped ones as well "
    '("augment": {} turns this off)'
)


def _batch_report(batch: PlannedBatch) -> dict[str, object]:
    edges = [
        {
            **asdict(edge),
            "budget": amounts(edge.budget, batch.formats),
            "costs": amounts(edge.costs, batch.formats),
            "task": None if edge.task is None else edge.task.model_dump(mode="json"),
        }
        for edge in batch.edges
    ]
    return {
        "model": as_written(batch.model),
        "metric": batch.metric.value,
        "source_costs": amounts(batch.source_costs, batch.formats),
        "present_accuracy": batch.present_accuracy,
        "present_outputs": [asdict(output) for output in batch.present_outputs],
        "source_accuracy": batch.source_accuracy and asdict(batch.source_accuracy),
        "source_outputs": [asdict(output) for output in batch.source_outputs],
        "source_steps": batch.source_steps,
        "source_seconds": batch.source_seconds,
        "flips": batch.flips,
        "class_counts": list(batch.class_counts),
        "left_out": list(batch.left_out),
        "preparations": [asdict(preparation) for preparation in batch.preparations],
        "edges": edges,
        "seconds": batch.seconds,
        "evidence": batch.evidence,
        "pacing": batch.pacing,
    }


def plan_tree(plan: Plan) -> RenderableType:
    """Return the trees of a plan, the limits that cannot be met, and the duration of the job."""
    alike = names_by((limit.goal, replace(limit, goal="")) for limit in plan.out_of_reach)
    lines = [_unreachable(goals, limit) for limit, goals in alike.items()]
    brief = sum(len(batch.edges) for batch in plan.batches) > _MOST_WITH_REASONS
    if brief:
        lines.append("Why algorithms and precisions were chosen: mistify plan --json.")
    lines.append(f"The job takes {_about(plan.seconds)}.")
    return Group(*(_batch(batch, brief) for batch in plan.batches), *map(escape, lines))


def _batch(batch: PlannedBatch, brief: bool) -> Tree:
    source = ", ".join(_source_scores(batch))
    model, steps = escape(as_written(batch.model)), counted(batch.source_steps, "step")
    head = f"[bold]{model}[/]: {escape(source)} after {steps}"
    tree = Tree(f"{head}, {duration(batch.source_seconds)}; predictions {escape(batch.evidence)}")
    if batch.pacing:
        tree.add(escape(batch.pacing))
    if batch.flips:
        tree.add(_FLIPS)
    for counts in batch.class_counts:
        tree.add(escape(counts))
    for files in batch.left_out:
        tree.add(f"[yellow]{escape(files)} are not read[/]")
    for preparation in batch.preparations:
        tree.add(escape(_preparing(preparation)))
    places: dict[str | None, Tree] = {None: tree}
    for edge in batch.edges:
        branch = places[edge.parent].add(Group(*_edge(batch, edge, brief)))
        places[edge.goals[0]] = branch
    return tree


def _preparing(preparation: PlannedPreparation) -> str:
    steps, seconds = counted(preparation.steps, "step"), duration(preparation.seconds)
    return f"{preparation.algorithm} prepares for all of its goals at once: {steps}, {seconds}"


def _edge(batch: PlannedBatch, edge: PlannedEdge, brief: bool) -> Iterable[str]:
    """Yield the forecast for an edge; if brief, without some costs and without the reasons."""
    costs = _shown(edge.costs, edge.budget, () if brief else _SHOWN)
    figures = [
        *_scores(batch.metric, edge.accuracy, edge.outputs),
        shares(costs, Source(batch.source_costs, metric=batch.metric, formats=batch.formats)),
        counted(edge.steps, "step"),
        duration(edge.seconds),
    ]
    task = "" if edge.task is None else f" ({edge.task})"
    yield f"[bold]{escape(listed(edge.goals))}[/]{escape(task)}: {escape(', '.join(figures))}"
    if edge.algorithm and not brief:
        yield f"[dim]{escape(edge.algorithm)}: {escape(edge.choice)}[/]"
    for choice, goals in {} if brief else names_by(edge.precisions.items()).items():
        yield f"[dim]{escape(f'{listed(goals)}: {choice}')}[/]"
    if edge.warning:
        yield f"[yellow]{escape(edge.warning)}[/]"


def _shown(costs: Costs, budget: Costs, always: Collection[str]) -> dict[str, float]:
    return {axis: cost for axis, cost in costs.items() if axis in always or axis in budget}


def _scores(metric: Metric, accuracy: Interval | None, outputs: Sequence[OutputEstimate]) -> Iterable[str]:
    """Yield the predicted score of a network, and those of its outputs if there are several."""
    yield f"{metric} {_interval(metric, accuracy)}"
    for one in outputs if len(outputs) > 1 else ():
        yield f"{one.output}: {one.metric} {_interval(one.metric, one.interval)}"


def _source_scores(batch: PlannedBatch) -> Iterable[str]:
    """Yield the scores of the source before tuning, each followed by the expected score after tuning."""
    present = {(own.output, own.metric): own.value for own in batch.present_outputs}
    yield _rising(batch.metric, batch.present_accuracy, batch.source_accuracy)
    for one in batch.source_outputs if len(batch.source_outputs) > 1 else ():
        yield f"{one.output}: {_rising(one.metric, present.get((one.output, one.metric)), one.interval)}"


def _rising(metric: Metric, present: float | None, figure: Interval | None) -> str:
    before = "" if present is None else f"{metric.shown(present)} now, "
    return f"{metric} {before}{_interval(metric, figure)}"


def _interval(metric: Metric, figure: Interval | None) -> str:
    if figure is None:
        return "unknown"
    return f"{metric.shown(figure.middle)} ({metric.shown(figure.low)} to {metric.shown(figure.high)})"


def _unreachable(goals: Sequence[str], limit: OutOfReach) -> str:
    return (
        f"{listed(goals)}: {limit.limit} {limit.value} cannot be met; the nearest that can is "
        f"{limit.nearest}, or start from a smaller model"
    )


def _about(seconds: float) -> str:
    return f"about {duration(seconds)}" if seconds >= 1 else duration(seconds)
