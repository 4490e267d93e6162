"""The trade-offs of a job: accuracy against each cost (paper 8.4, Figure 8)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mistify.config.data.metric import Metric
from mistify.costs.budget import FLOPS, HOST_NAME, LATENCY, MEMORY, PARAMS, SIZE, conditions_of, quantity_of
from mistify.costs.catalogue import is_host

_MEASURED: Final = "measured_latency_ms"

#: Figure of the report -> the title of its axis, and the quantity of the limits on it.
_AXES: Final[Mapping[str, tuple[str, str]]] = {
    FLOPS: ("multiply-adds", FLOPS),
    PARAMS: ("parameters", PARAMS),
    MEMORY: ("memory, bytes", MEMORY),
    _MEASURED: ("measured latency, ms", LATENCY),
}

#: Axes that are plotted only if goals limit them. Latencies on different hardware are comparable only as
#: shares of the source's latency there.
_ELSEWHERE: Final = "predicted_latency_share"
_IF_LIMITED: Final[Mapping[str, tuple[str, str]]] = {
    SIZE: ("size, bytes", SIZE),
    _ELSEWHERE: ("predicted latency, share of the source's", LATENCY),
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
        limits: The goals' limits on this cost, ascending; for a measured latency, only those on the server's
            machine.
        source: Cost and score of the tuned source; None if one is unknown.
        batch: Number of the batch in its job.
        output: The output whose score is plotted; empty for the score of all outputs together.
        batch_name: Number and model of the batch, for people; empty for the only batch of a job.
    """

    axis: str
    title: str
    metric: Metric
    points: Sequence[Point]
    limits: Sequence[float]
    source: tuple[float, float] | None
    batch: int = 0
    output: str = ""
    batch_name: str = ""

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

    If the packages have several outputs, those for the score of each output follow those for the whole score.
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
        replace(trade_off, batch_name=_batch_name(batch, sources) if len(batches) > 1 else "")
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
    for output, metric in _scores(goals):
        for axis, (title, quantity) in {**_AXES, **_IF_LIMITED}.items():
            points = list(_points(goals, axis, output, metric))
            limits = sorted(set(_limits(goals, axis, quantity)))
            if len(points) > 1 and (limits or axis in _AXES):
                place = _source(source, axis, output, metric)
                yield TradeOff(axis, title, metric, points, limits, place, batch, output)


def _scores(goals: Sequence[Mapping[str, Any]]) -> list[tuple[str, Metric]]:
    """Return the scores to plot: the whole one as the output "", then those of several outputs."""
    outputs = dict.fromkeys(
        (score["output"], Metric(score["metric"])) for goal in goals for score in goal.get("outputs", ())
    )
    whole = "", Metric(goals[0]["achieved"]["metric"])
    return [whole, *outputs] if len(outputs) > 1 else [whole]


def _points(goals: Sequence[Mapping[str, Any]], axis: str, output: str, metric: Metric) -> Iterator[Point]:
    for goal in goals:
        cost = _share_elsewhere(goal) if axis == _ELSEWHERE else goal["achieved"].get(axis)
        score = _score(goal.get("outputs", ()), output, metric) if output else goal["achieved"]["accuracy"]
        if cost is not None and score is not None:
            yield Point(goal["id"], cost, score, goal["met"])


def _score(scores: Sequence[Mapping[str, Any]], output: str, metric: Metric) -> float | None:
    """Return the score of an output; None if it is unknown."""
    values = (
        score["value"] for score in scores if score["output"] == output and score["metric"] == metric.value
    )
    return next(values, None)


def _share_elsewhere(goal: Mapping[str, Any]) -> float | None:
    """Return the latency predicted for other hardware than the server's, as a share of the source's there."""
    speedup = goal["achieved"].get("speedup")
    return 1 / speedup if speedup and not is_host(goal.get("hardware", HOST_NAME)) else None


def _limits(goals: Sequence[Mapping[str, Any]], axis: str, quantity: str) -> Iterator[float]:
    elsewhere = axis == _ELSEWHERE
    for goal in goals:
        for limited, limit in goal["budget"].items():
            hardware = conditions_of(limited).hardware
            if quantity_of(limited) != quantity or elsewhere == (hardware is None or is_host(hardware)):
                continue
            share = _share_elsewhere(goal) if elsewhere else None
            if not elsewhere:
                yield limit
            elif share is not None:
                yield limit / goal["achieved"]["latency_ms"] * share


def _source(
    source: Mapping[str, Any] | None, axis: str, output: str, metric: Metric
) -> tuple[float, float] | None:
    if source is None:
        return None
    score = _score(source.get("tuned_outputs", ()), output, metric) if output else source["tuned_accuracy"]
    costs = {**source, _MEASURED: source["measured_latency_ms"].get("1"), _ELSEWHERE: 1.0}
    cost = costs.get(axis)
    return None if cost is None or score is None else (cost, score)
