"""How amounts on a cost axis are displayed; servers send the formats of plug-ins' axes to clients."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mistify.costs.budget import Costs, axis_name, conditions_of, quantity_of
from mistify.costs.catalogue import is_host
from mistify.costs.quantization import Quantization
from mistify.parsing.quantities import PLAIN, QuantityKind

#: Prefix of quantities for which more is better: costs are their reciprocals.
INVERSE: Final = "1/"


@dataclass(frozen=True)
class AxisFormat:
    """The names, the conversion and the units of the amounts on one axis.

    Attributes:
        quantity: The name in costs and budgets; `1/frames_per_s` for reciprocals.
        label: A name for people.
        kind: The units of its amounts.
    """

    quantity: str
    label: str
    kind: QuantityKind

    @property
    def name(self) -> str:
        """The name of the amounts, without the prefix of reciprocals."""
        return self.quantity.removeprefix(INVERSE)

    @property
    def inverse(self) -> bool:
        """True if costs are reciprocals of amounts, because more is better."""
        return self.quantity.startswith(INVERSE)

    def converted(self, value: float) -> float:
        """Convert a cost to its amount, or an amount to its cost."""
        return 1 / value if self.inverse else value

    def amount(self, cost: float, digits: int | None = None) -> str:
        """Format the amount of a cost in a suitable unit."""
        return self.kind.format(self.converted(cost), digits)

    def in_plain_unit(self, cost: float) -> str:
        """Format the amount of a cost in the base unit."""
        value, unit = self.converted(cost), self.kind.plain or self.label
        return f"{value:,.0f} {unit}" if self.kind.whole else f"{value:,.4g} {unit}"

    def cost(self, costs: Costs, hardware: str, precision: Quantization) -> float | None:
        """Return the cost on the given hardware and at the given precision, if it depends on them.

        Returns:
            None if `costs` has no such axis.
        """
        names = [
            axis_name(self.quantity, where, at)
            for where in (hardware, None)
            for at in (precision, Quantization.NONE)
        ]
        if precision.integer:
            names.insert(0, axis_name(self.quantity, precision=precision, integer_inputs=True))
        return next((costs[name] for name in names if name in costs), None)

    def on(self, axis: str) -> str:
        """Name an axis of this quantity for people: `latency on host`, `memory in int8 with int8 inputs`.

        One thread is not mentioned; `latency on host with 4 threads` is. Figures for hardware other than this
        machine are predictions: `predicted latency on jetson-nano`.
        """
        hardware, precision, threads, integer_inputs = conditions_of(axis)
        known = "" if hardware is None or is_host(hardware) else "predicted "
        where = f" on {hardware}" if hardware else ""
        how = f" with {threads} threads" if threads != 1 else ""
        at = "" if precision is Quantization.NONE else f" in {precision.value}"
        inputs = f" with {precision.value} inputs" if integer_inputs else ""
        return known + self.label + where + how + at + inputs


def format_of(axis: str, formats: Iterable[AxisFormat]) -> AxisFormat:
    """Return the format of an axis, or one with its bare name and plain numbers if it is not in `formats`."""
    quantity = quantity_of(axis)
    known = next((axis_format for axis_format in formats if axis_format.quantity == quantity), None)
    return known or AxisFormat(quantity, quantity.removeprefix(INVERSE), PLAIN)
