"""The slice of a goal: cut out of the converted network, and measured before it is chosen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from executors.contract.slices import Slice
from executors.timing import activity
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, Costs, exceeded, hardware_of, threads_of, tightest_ratio
from mistify.costs.catalogue import HOST
from mistify.costs.network import NetworkCost
from mistify_server.worker.adaptation.converted_costs import largest_stored, limits_storage
from mistify_server.worker.adaptation.latency import (
    LatencyReading,
    Profiles,
    corrected,
    limits_latency,
    slowest_ms,
    with_margin,
)
from mistify_server.worker.packaging.conversion.cuttable import CuttableNetwork


@dataclass(frozen=True)
class SliceReading:
    """The measurements of a slice.

    Attributes:
        deviation: Ratio of its latency on this machine to the predicted latency; 1 if it was not measured.
        stored: Costs in its file, by axis.
    """

    deviation: float = 1.0
    stored: Costs = field(default_factory=dict)

    def costs(self, cost: NetworkCost, profiles: Profiles) -> Costs:
        """Return the costs of the slice on all axes."""
        return {**costs_of(cost, corrected(profiles, self.deviation)), **self.stored}

    def ratios(self, predicted: Costs) -> Costs:
        """Return the ratio of each cost to the predicted one."""
        return {
            axis: self.deviation if hardware_of(axis) == HOST.name else self.stored.get(axis, cost) / cost
            for axis, cost in predicted.items()
        }


#: Cuts a slice and measures it.
SliceMeter = Callable[[Slice], SliceReading]


def slice_meter(
    networks: Sequence[tuple[QuantizationConfig, CuttableNetwork]], budget: Budget, profiles: Profiles
) -> SliceMeter:
    """Return a function that measures slices as in their packages, but only for limits that need it.

    Args:
        networks: The converted networks from which packages are cut, with their precisions.
        profiles: The hardware with latency limits in the budget.
    """
    threads = threads_of(budget)

    @activity("measuring")
    def measure(one: Slice) -> SliceReading:
        if not (limits_latency(budget) or limits_storage(budget)):
            return SliceReading()
        files = [(each, network.cut(one.units)) for each, network in networks]
        stored = largest_stored(files, threads) if limits_storage(budget) else {}
        return SliceReading(
            _deviation(one, [file for _, file in files], budget, profiles) if limits_latency(budget) else 1.0,
            {axis: cost for axis, cost in stored.items() if axis in budget},
        )

    return measure


def measured_slice(
    choices: Sequence[Slice], budget: Budget, profiles: Profiles, measure: SliceMeter
) -> tuple[Slice, SliceReading]:
    """Return the slice with the best expected quality within a budget, and its measurements.

    The best one by predicted costs is measured, and its measurements correct the predictions for the others,
    until the best one is among those measured. If none is within the budget, not even the smallest one, it is
    the measured one that exceeds the budget least.

    Args:
        choices: The slices, at least one.
        profiles: The hardware with latency limits in the budget.
    """
    aim, predicted = with_margin(budget), {one: costs_of(one.cost, profiles) for one in choices}
    readings: dict[Slice, SliceReading] = {}
    ratios: dict[Slice, Costs] = {}
    latest = SliceReading().ratios(predicted[choices[0]])
    smallest = _nearest(predicted, aim)
    while True:
        costs = {one: _scaled(own, ratios.get(one, latest)) for one, own in predicted.items()}
        within = [one for one in choices if not exceeded(costs[one], aim)]
        best = max(within, key=lambda one: one.expected) if within else smallest
        if best in readings:
            best = best if within else _nearest({one: costs[one] for one in readings}, aim)
            return best, readings[best]
        readings[best] = measure(best)
        latest = ratios[best] = readings[best].ratios(predicted[best])


def _scaled(costs: Costs, ratios: Costs) -> Costs:
    return {axis: ratios[axis] * cost for axis, cost in costs.items()}


def _nearest(costs: Mapping[Slice, Costs], budget: Budget) -> Slice:
    """Return the slice that exceeds a budget least, or one within it."""
    return max(costs, key=lambda one: tightest_ratio(costs[one], budget))


def _deviation(one: Slice, files: Sequence[bytes], budget: Budget, profiles: Profiles) -> float:
    """Return the ratio of measured to predicted latency; 1 if LiteRT cannot run the slice here."""
    taken_ms = slowest_ms(files, threads_of(budget))
    if taken_ms is None:
        return 1.0
    return LatencyReading.of(one.cost, taken_ms, profiles, budget).deviation
