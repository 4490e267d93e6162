"""Costs and accuracies as text."""

from collections.abc import Iterable, Mapping

from mistify.config.data.metric import Metric
from mistify.costs.axes import built_in_formats, plugged_in_formats
from mistify.costs.budget import Budget, Costs, exceeded, quantity_of, source_axis
from mistify.costs.formats import INVERSE, AxisFormat, format_of
from mistify.jobs.job import Source

_DIGITS = 3


def label(axis: str, formats: Iterable[AxisFormat] = ()) -> str:
    """Return the label of a cost axis: `latency on jetson-nano`, `memory in int8`.

    Args:
        formats: Formats of axes added by the server's plug-ins, here and below.
    """
    return _format(axis, formats).on(axis)


def amount(axis: str, value: float | None, formats: Iterable[AxisFormat] = ()) -> str:
    """Return a cost in its unit, with three significant digits; a dash for None."""
    return "-" if value is None else _format(axis, formats).amount(value, _DIGITS)


def excess(costs: Costs, budget: Budget) -> str:
    """Describe the costs over their limits, the largest excess first; empty if there are none.

    For example `latency on host 2.1ms over 2ms`.
    """
    formats = plugged_in_formats(costs)
    return ", ".join(
        _over(_format(axis, formats), axis, costs[axis], budget[axis]) for axis in exceeded(costs, budget)
    )


def _over(form: AxisFormat, axis: str, cost: float, limit: float) -> str:
    """Return a cost and its limit, with as many digits as tell them apart."""
    for digits in (_DIGITS, 2 * _DIGITS, None):
        shown = form.amount(cost, digits), form.amount(limit, digits)
        if shown[0] != shown[1]:
            break
    return f"{form.on(axis)} {shown[0]} {'under' if form.inverse else 'over'} {shown[1]}"


def amounts(costs: Costs, formats: Iterable[AxisFormat]) -> dict[str, float]:
    """Return costs or limits by axis, with reciprocals converted back to amounts."""
    return {
        axis.removeprefix(INVERSE): format_of(axis, formats).converted(cost) for axis, cost in costs.items()
    }


def quality(metric: Metric, figure: float | None) -> str:
    """Return the value of a metric: a share in per cent, an error as a number; a dash for None."""
    return "-" if figure is None else metric.shown(figure)


def duration(seconds: float) -> str:
    """Format a time for people: `less than a second`, `12 s`, `12 min`, `2.0 h`."""
    if seconds < 1:
        return "less than a second"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:.1f} h"


def shares(costs: Costs, source: Source) -> str:
    """Return costs relative to the float32 source: `multiply-adds 48%, memory in int8 11%`."""
    references = {axis: source_axis(axis) for axis in costs if source.costs.get(source_axis(axis))}
    known = {_shown_for(reference, references) for reference in references.values()} & costs.keys()
    shown = {axis: _format(axis, source.formats) for axis in sorted(known, key=_place)}
    ratios = {
        axis: form.converted(costs[axis]) / form.converted(source.costs[references[axis]])
        for axis, form in shown.items()
    }
    return ", ".join(f"{shown[axis].on(axis)} {ratio:.0%}" for axis, ratio in ratios.items())


def _shown_for(reference: str, references: Mapping[str, str]) -> str:
    """Return the axis to display for a quantity: the one at the package's precision, if it is unique.

    Args:
        reference: The axis in float32.
        references: Axis -> its float32 axis.
    """
    others = [axis for axis, own in references.items() if own == reference and axis != reference]
    return others[0] if len(others) == 1 else reference


def _place(axis: str) -> tuple[bool, int, str]:
    """Return a sort key: built-in axes first, in their order."""
    order = [axis_format.quantity for axis_format in built_in_formats()]
    foreign = quantity_of(axis) not in order
    return foreign, 0 if foreign else order.index(quantity_of(axis)), axis


def _format(axis: str, formats: Iterable[AxisFormat]) -> AxisFormat:
    return format_of(axis, (*built_in_formats(), *formats))
