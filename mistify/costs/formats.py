"""How people read the amounts on an axis of costs: what a client is told of axes that plug-ins add."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mistify.costs.budget import Costs, axis_name, conditions_of, quantity_of
from mistify.costs.quantization import Quantization
from mistify.parsing.quantities import PLAIN, QuantityKind

#: Before the name of a quantity of which more is better: costs are its reciprocals.
INVERSE: Final = "1/"


@dataclass(frozen=True)
class Legend:
    """Of a quantity.

    Attributes:
        quantity: What it is called in costs and budgets; `1/frames_per_s` of reciprocals.
        label: What people call it.
        kind: How its amounts are written.
    """

    quantity: str
    label: str
    kind: QuantityKind

    @property
    def name(self) -> str:
        """What the amounts are called, whatever costs are."""
        return self.quantity.removeprefix(INVERSE)

    @property
    def inverse(self) -> bool:
        """Whether costs are the reciprocals of amounts, as more is better."""
        return self.quantity.startswith(INVERSE)

    def turned(self, value: float) -> float:
        """The amount of a cost, and the cost of an amount."""
        return 1 / value if self.inverse else value

    def amount(self, cost: float, digits: int | None = None) -> str:
        """What a cost amounts to, in the unit that suits it."""
        return self.kind.format(self.turned(cost), digits)

    def spelled(self, cost: float) -> str:
        """What a cost amounts to, in the plain unit."""
        value, unit = self.turned(cost), self.kind.plain or self.label
        return f"{value:,.0f} {unit}" if self.kind.whole else f"{value:,.4g} {unit}"

    def cost(self, costs: Costs, hardware: str, precision: Quantization) -> float | None:
        """The cost on some hardware and at some precision, as far as it depends on them, if it is there."""
        names = (
            axis_name(self.quantity, where, at)
            for where in (hardware, None)
            for at in (precision, Quantization.NONE)
        )
        return next((costs[name] for name in names if name in costs), None)

    def on(self, axis: str) -> str:
        """What an axis of this quantity is called: `latency on jetson-nano`, `memory in int8`."""
        hardware, precision = conditions_of(axis)
        where = f" on {hardware}" if hardware else ""
        return self.label + where + ("" if precision is Quantization.NONE else f" in {precision.value}")


def legend_of(axis: str, legends: Iterable[Legend]) -> Legend:
    """The legend of an axis among some; where it is not there, its name and plain numbers have to do."""
    quantity = quantity_of(axis)
    known = next((legend for legend in legends if legend.quantity == quantity), None)
    return known or Legend(quantity, quantity.removeprefix(INVERSE), PLAIN)
