"""How much of its limits a goal's package uses."""

from collections.abc import Sequence
from dataclasses import dataclass

from mistify.costs.axes import built_in_formats
from mistify.costs.budget import hardware_of
from mistify.costs.catalogue import is_host
from mistify.costs.formats import AxisFormat, format_of
from mistify.jobs.formatting import amount, label
from mistify.jobs.job import Goal


@dataclass(frozen=True)
class LimitUse:
    """A cost of a package, with its limit.

    Attributes:
        axis: The label of the cost without its hardware: `latency`.
        full_axis: The label with its conditions.
        reached: The cost with its unit; empty without a package.
        limit: The limit with its unit, after "at least" if more is better.
        share: The cost as a share of its limit; None without a package.
    """

    axis: str
    full_axis: str
    reached: str
    limit: str
    share: float | None

    @property
    def is_exceeded(self) -> bool:
        """True if the package costs more than the limit."""
        return self.share is not None and self.share > 1

    @property
    def bar(self) -> float:
        """The length of the bar as a percentage of the limit's bar, at most 100."""
        return round(100 * min(self.share or 0.0, 1.0), 1)


def limit_uses(goal: Goal, plugged_in: Sequence[AxisFormat]) -> list[LimitUse]:
    """Return the limited costs of a goal, the one closest to its limit, or furthest beyond it, first.

    Args:
        plugged_in: Formats of axes from plug-ins.
    """
    uses = [_use(goal, axis, limit, plugged_in) for axis, limit in goal.spec.budget.items()]
    return sorted(uses, key=lambda use: -(use.share or 0.0))


def _use(goal: Goal, axis: str, limit: float, plugged_in: Sequence[AxisFormat]) -> LimitUse:
    axis_format = format_of(axis, (*built_in_formats(), *plugged_in))
    hardware = hardware_of(axis)
    measured = goal.measured.get(axis) if hardware and is_host(hardware) else None
    cost = goal.achieved.get(axis) if measured is None else measured
    return LimitUse(
        axis_format.label,
        label(axis, plugged_in),
        "" if cost is None else amount(axis, cost, plugged_in),
        ("at least " if axis_format.inverse else "") + amount(axis, limit, plugged_in),
        None if cost is None else cost / limit,
    )
