"""The costs of a goal's package at its precision, compared with its limits and the float32 source."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mistify.costs.budget import LATENCY, Costs, conditions_of, quantity_of, source_axis
from mistify.costs.catalogue import is_host
from mistify.costs.formats import AxisFormat
from mistify.costs.quantization import Quantization
from mistify.jobs.formatting import label
from mistify.jobs.job import Goal, Source
from mistify.jobs.report import hardware_of_goal


@dataclass(frozen=True)
class Cost:
    """A cost of a package; `reached`, `limit` and `source` are None if unknown.

    Attributes:
        elsewhere: Whether it is for hardware that is neither the goal's nor the server's machine.
    """

    label: str
    axis: str
    reached: float | None
    limit: float | None
    source: float | None
    elsewhere: bool = False

    @property
    def is_exceeded(self) -> bool:
        """True if it is known to be above its limit."""
        return self.reached is not None and self.limit is not None and self.reached > self.limit


def costs_of(goal: Goal, source: Source | None, formats: Sequence[AxisFormat]) -> list[Cost]:
    """Return the limited costs of a goal's package, then the others by the cost model, then measured ones.

    For a goal without a package, return the limited costs.

    Args:
        source: The source; None while it is unknown.
        formats: Formats of axes from plug-ins.
    """
    own = source or Source({})
    if not goal.achieved:
        return [
            Cost(label(axis, formats), axis, None, limit, own.costs.get(source_axis(axis)))
            for axis, limit in goal.spec.budget.items()
        ]
    predicted = _costs(goal, goal.achieved, own.costs, formats)
    costs = [*predicted, *_costs(goal, goal.measured, own.measured, formats, ", measured")]
    return sorted(costs, key=lambda cost: cost.limit is None)


def _costs(
    goal: Goal, reached: Costs, of_source: Costs, formats: Sequence[AxisFormat], measured: str = ""
) -> Iterator[Cost]:
    precision = goal.spec.quantization.precision
    axes = [axis for axis in reached if conditions_of(axis).precision in (precision, Quantization.NONE)]
    own = {source_axis(axis) for axis in axes if conditions_of(axis).precision is precision}
    for axis in axes:
        # Costs in float32 say nothing about a package at another precision.
        if conditions_of(axis).precision is not precision and axis in own:
            continue
        named = label(axis, formats)
        names_prediction = named.startswith("predicted ")
        named += measured or (", predicted" if quantity_of(axis) == LATENCY and not names_prediction else "")
        hardware, limit = conditions_of(axis).hardware, goal.spec.budget.get(axis)
        elsewhere = hardware is not None and hardware != hardware_of_goal(goal) and not is_host(hardware)
        yield Cost(named, axis, reached[axis], limit, of_source.get(source_axis(axis)), elsewhere)
