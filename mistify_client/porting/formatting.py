"""Costs as people read them."""

from collections.abc import Iterable

from mistify.config.metric import Metric
from mistify.costs.axes import built_in_legends
from mistify.costs.budget import Costs, quantity_of, source_axis
from mistify.costs.formats import INVERSE, Legend, legend_of
from mistify.jobs.job import Source

_DIGITS = 3


def label(axis: str, legends: Iterable[Legend] = ()) -> str:
    """What an axis of costs is called: `latency on jetson-nano`, `memory in int8`.

    Args:
        axis: the axis.
        legends: of axes that the server knows and Mistify itself does not. So also below.
    """
    return _legend(axis, legends).on(axis)


def amount(axis: str, value: float | None, legends: Iterable[Legend] = ()) -> str:
    """A cost in its unit, with three significant digits; a dash where there is none."""
    return "-" if value is None else _legend(axis, legends).amount(value, _DIGITS)


def amounts(costs: Costs, legends: Iterable[Legend]) -> dict[str, float]:
    """Costs, or limits, with amounts where costs are their reciprocals."""
    found = {axis: legend_of(axis, legends) for axis in costs}
    return {axis.removeprefix(INVERSE): legend.turned(costs[axis]) for axis, legend in found.items()}


def quality(metric: Metric, figure: float | None) -> str:
    """What a metric says: a share in per cent, a mean squared error as a number; a dash where nothing is."""
    return "-" if figure is None else metric.shown(figure)


def shares(costs: Costs, source: Source) -> str:
    """Costs as shares of the source model's, in float32 both: `multiply-adds 48%, parameters 51%`."""
    known = [axis for axis in costs if source.costs.get(axis) and axis == source_axis(axis)]
    shown = {axis: _legend(axis, source.legends) for axis in sorted(known, key=_place)}
    return ", ".join(
        f"{legend.on(axis)} {legend.turned(costs[axis]) / legend.turned(source.costs[axis]):.0%}"
        for axis, legend in shown.items()
    )


def _place(axis: str) -> tuple[bool, int, str]:
    """Mistify's own axes first, in their order."""
    order = [legend.quantity for legend in built_in_legends()]
    foreign = quantity_of(axis) not in order
    return foreign, 0 if foreign else order.index(quantity_of(axis)), axis


def _legend(axis: str, legends: Iterable[Legend]) -> Legend:
    return legend_of(axis, (*built_in_legends(), *legends))
