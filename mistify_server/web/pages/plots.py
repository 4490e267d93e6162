"""The trade-offs of a job as plots: accuracy against each cost (paper 8.4, Figure 8)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mistify.config.metric import Metric
from mistify.costs.budget import FLOPS, LATENCY, MEMORY, PARAMS, conditions_of, quantity_of
from mistify.costs.catalogue import is_host
from mistify.jobs.job import Job
from mistify.jobs.report import report

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


def plots_of(job: Job) -> list[dict[str, Any]]:
    """Return a plot for each cost that two packages or more have, with what Plotly draws and the limits."""
    data: dict[str, Any] = report(job)
    metric = job.goals[0].metric if job.goals else Metric.ACCURACY
    plots = []
    for axis, (title, quantity) in _AXES.items():
        points = list(_points(data["goals"], axis))
        if len(points) > 1:
            limits = sorted(set(_limits(job, quantity)))
            traces = list(_traces(points, metric, _source(data["source"], axis)))
            plots.append({"title": title, "score": metric.value, "limits": limits, "traces": traces})
    return plots


def front(points: Sequence[Point], metric: Metric) -> list[Point]:
    """Return the points than which no other is cheaper and as good, or as cheap and better."""
    sign = 1 if metric.is_share else -1
    kept: list[Point] = []
    for point in sorted(points, key=lambda each: (each.cost, -sign * each.score)):
        if not kept or sign * point.score > sign * kept[-1].score:
            kept.append(point)
    return kept


def _points(goals: Sequence[Mapping[str, Any]], axis: str) -> Iterator[Point]:
    for goal in goals:
        cost, score = goal["achieved"].get(axis), goal["achieved"]["accuracy"]
        if cost is not None and score is not None:
            yield Point(goal["id"], cost, score, goal["met"])


def _limits(job: Job, quantity: str) -> Iterator[float]:
    """Yield the limits of goals on a quantity; of latency those on the server's machine."""
    for goal in job.goals:
        for axis, limit in goal.budget.items():
            hardware = conditions_of(axis).hardware
            if quantity_of(axis) == quantity and (hardware is None or is_host(hardware)):
                yield limit


def _source(source: Mapping[str, Any] | None, axis: str) -> tuple[float, float] | None:
    """Return the cost and the score of the tuned source; None where one is not known."""
    if source is None or source["tuned_accuracy"] is None:
        return None
    cost = source["measured_latency_ms"].get("1") if axis == _MEASURED else source[axis]
    return None if cost is None else (cost, source["tuned_accuracy"])


def _traces(
    points: Sequence[Point], metric: Metric, source: tuple[float, float] | None
) -> Iterator[dict[str, Any]]:
    best = front(points, metric)
    yield {
        "name": "best",
        "mode": "lines",
        "line": {"shape": "hv", "dash": "dot"},
        "x": [point.cost for point in best],
        "y": [point.score for point in best],
        "hoverinfo": "skip",
    }
    for name, symbol, met in (("met", "circle", True), ("not met", "x", False)):
        shown = [point for point in points if point.met is met]
        if shown:
            yield {
                "name": name,
                "mode": "markers",
                "marker": {"symbol": symbol, "size": 9},
                "x": [point.cost for point in shown],
                "y": [point.score for point in shown],
                "text": [point.goal for point in shown],
                "hovertemplate": "%{text}<br>%{x:.4s}, %{y:.4f}<extra></extra>",
            }
    if source is not None:
        marker = {"symbol": "star", "size": 12}
        x, y = source
        yield {"name": "source", "mode": "markers", "marker": marker, "x": [x], "y": [y]}
