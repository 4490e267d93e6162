"""Costs as people read them."""

from collections.abc import Callable, Mapping

from mistify.budget import FLOPS, LATENCY, MEMORY, PARAMS, SIZE, Costs, hardware_of, quantity_of, source_axis
from mistify.metric import Metric
from mistify.quantities import format_bytes, format_count, format_time

_DIGITS = 3
_LABELS = {FLOPS: "multiply-adds", PARAMS: "params", MEMORY: "memory", SIZE: "size", LATENCY: "latency"}
_ORDER = tuple(_LABELS)
_FORMATS: Mapping[str, Callable[..., str]] = {
    FLOPS: format_count,
    PARAMS: format_count,
    MEMORY: format_bytes,
    SIZE: format_bytes,
    LATENCY: format_time,
}


def label(axis: str) -> str:
    """What an axis of costs is called: `latency on jetson-nano`, `memory in int8`."""
    quantity, _, condition = axis.partition("@")
    relation = "on" if hardware_of(axis) else "in"
    return _LABELS[quantity] + (f" {relation} {condition}" if condition else "")


def amount(axis: str, value: float | None) -> str:
    """A cost in its unit, with three significant digits; a dash where there is none."""
    return "-" if value is None else _FORMATS[quantity_of(axis)](value, _DIGITS)


def quality(metric: Metric, figure: float | None) -> str:
    """What a metric says: a share in per cent, a mean squared error as a number; a dash where nothing is."""
    return "-" if figure is None else metric.shown(figure)


def shares(costs: Costs, source: Costs) -> str:
    """Costs as shares of the source model's, in float32 both: `multiply-adds 48%, params 51%`."""
    known = sorted((axis for axis in costs if source.get(axis) and axis == source_axis(axis)), key=_place)
    return ", ".join(f"{label(axis)} {costs[axis] / source[axis]:.0%}" for axis in known)


def _place(axis: str) -> tuple[int, str]:
    return _ORDER.index(quantity_of(axis)), axis
