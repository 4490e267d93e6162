"""The trade-offs of a job: accuracy against each cost (paper 8.4, Figure 8)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mistify.config.data.metric import Metric
from mistify.costs.budget import FLOPS, LATENCY, MEMORY, PARAMS, conditions_of, quantity_of
from mistify.costs.catalogue import is_host

_MEASURED: Final = "measured_latency_ms"

#: Figure of the report -> the title of its axis, and the quantity of the limits on it.
_AXES: Final[Mapping[str, tuple[str, str]]] = {
    FLOPS: ("multiply-adds", FLOPS),
    PARAMS: ("parameters", PARAMS),
    MEMORY: ("memory, bytes", MEMORY),
    _MEASURED: ("measured latency, ms", LATENCY),
}


@dataclass(frozen=True)
class Point:
    """A package: its goal, its cost, its score, and whether the goal is met."""

    goal: str
    cost: float
    score: float
    met: bool


@dataclass(frozen=True)
class TradeOff:
    """The packages of a batch, plotted over one of their costs.

    Attributes:
        axis: The cost's name in the job's report.
        title: The axis' title, for people.
        metric: The metric of the scores, for people.
        points: At least two.
        limits: The goals' limits on this cost, ascending; for latency, those on the server's machine.
        source: Cost and score of the tuned source; None if one is unknown.
        batch: Number of the batch in its job.
    """

    axis: str
    title: str
    metric: Metric
    points: Sequence[Point]
    limits: Sequence[float]
    source: tuple[float, float] | None
    batch: int = 0

    @property
    def front(self) -> list[Point]:
        """The Pareto front: points for which no other is cheaper and as good, or as cheap and better."""
        sign = 1 if self.metric.is_share else -1
        kept: list[Point] = []
        for point in sorted(self.points, key=lambda each: (each.cost, -sign * each.score)):
            if not kept or sign * point.score > sign * kept[-1].score:
                kept.append(point)
        return kept


def trade_offs(report: Mapping[str, Any]) -> list[TradeOff]:
    """Return a trade-off for each cost known for at least two packages of a batch.

    Packages from different models cannot be compared.

    Args:
        report: A value that `mistify.jobs.report.report` has returned, as stored in `report.json`.
    """
    batches: defaultdict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for goal in report["goals"]:
        batches[goal.get("batch", 0)].append(goal)  # older reports do not name it
        # Older reports have only the source of batch 0.
    sources = {
        source.get("batch", 0): source for source in report.get("sources", (report["source"],)) if source
    }
    return [
        replace(trade_off, title=f"{trade_off.title}, {_batch_name(batch, sources)}")
        if len(batches) > 1
        else trade_off
        for batch, goals in sorted(batches.items())
        for trade_off in _trade_offs(batch, goals, sources.get(batch))
    ]


def _batch_name(batch: int, sources: Mapping[int, Mapping[str, Any]]) -> str:
    """Return the number of a batch, with the name of its model if known."""
    model = sources.get(batch, {}).get("model")
    return f"batch {batch}: {model}" if model else f"batch {batch}"


def _trade_offs(
    batch: int, goals: Sequence[Mapping[str, Any]], source: Mapping[str, Any] | None
) -> Iterator[TradeOff]:
    metric = Metric(goals[0]["achieved"]["metric"])
    for axis, (title, quantity) in _AXES.items():
        points = list(_points(goals, axis))
        if len(points) > 1:
            limits = sorted(set(_limits(goals, quantity)))
            yield TradeOff(axis, title, metric, points, limits, _source(source, axis), batch)


def _points(goals: Sequence[Mapping[str, Any]], axis: str) -> Iterator[Point]:
    for goal in goals:
        cost, score = goal["achieved"].get(axis), goal["achieved"]["accuracy"]
        if cost is not None and score is not None:
            yield Point(goal["id"], cost, score, goal["met"])


def _limits(goals: Sequence[Mapping[str, Any]], quantity: str) -> Iterator[float]:
    for goal in goals:
        for axis, limit in goal["budget"].items():
            hardware = conditions_of(axis).hardware
            if quantity_of(axis) == quantity and (hardware is None or is_host(hardware)):
                yield limit


def _source(source: Mapping[str, Any] | None, axis: str) -> tuple[float, float] | None:
    if source is None or source["tuned_accuracy"] is None:
        return None
    cost = source["measured_latency_ms"].get("1") if axis == _MEASURED else source[axis]
    return None if cost is None else (cost, source["tuned_accuracy"])
