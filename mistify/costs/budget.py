"""Costs and budgets: the axes along which networks are measured and goals are set (paper 4.1).

The name of an axis says what it counts, and where it depends on them, on which hardware and at which
precision: `flops`, `latency_ms@jetson-nano`, `memory_bytes@int8`; without a precision it is float32. Hardware
runs networks with one thread unless the name says otherwise: `latency_ms@host@4-threads@int8`.
`mistify.costs.axes` describes each axis.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from mistify.costs.quantization import Quantization

__all__ = ["exceeded", "meets"]

FLOPS = "flops"
PARAMS = "params"
MEMORY = "memory_bytes"
SIZE = "size_bytes"
LATENCY = "latency_ms"

#: The hardware that packages are measured on where they are made.
HOST_NAME: Final = "host"

#: axis -> cost of a network.
Costs: TypeAlias = Mapping[str, float]

#: axis -> upper limit. An axis that is absent is unconstrained.
Budget: TypeAlias = Mapping[str, float]

_PRECISIONS = frozenset(precision.value for precision in Quantization)

_THREADS: Final = "-threads"

#: Names that were read lately: those of all goals of a job are the same few.
_REMEMBERED: Final = 1_000


class AxisConditions(NamedTuple):
    """The conditions encoded in an axis name.

    Attributes:
        hardware: None where the axis does not depend on it.
        precision: Float32 by default.
        threads: One by default.
    """

    hardware: str | None
    precision: Quantization = Quantization.NONE
    threads: int = 1

    @property
    def profile(self) -> str | None:
        """The hardware with its number of threads, as `at_threads` names it."""
        return None if self.hardware is None else at_threads(self.hardware, self.threads)


def at_threads(hardware: str, threads: int) -> str:
    """Name hardware that runs networks with a number of threads: `host`, and `host@4-threads`."""
    return hardware if threads == 1 else f"{hardware}@{threads}{_THREADS}"


def axis_name(quantity: str, hardware: str | None = None, precision: Quantization = Quantization.NONE) -> str:
    """Return the axis of a quantity on the given hardware and at the given precision.

    The hardware may have its number of threads, and the precision, in its name, as profiles do.
    """
    stored_as = precision.stored_as
    if stored_as is Quantization.NONE or (hardware and hardware.endswith(f"@{stored_as.value}")):
        return "@".join(filter(None, (quantity, hardware)))
    return "@".join(filter(None, (quantity, hardware, stored_as.value)))


def latency_axis(hardware: str, precision: Quantization = Quantization.NONE) -> str:
    """Return the axis of latency on one hardware profile, at one precision."""
    return axis_name(LATENCY, hardware, precision)


def memory_axis(precision: Quantization) -> str:
    """Return the axis of memory at one precision."""
    return axis_name(MEMORY, precision=precision)


def size_axis(precision: Quantization) -> str:
    """Return the axis of the package's size at one precision."""
    return axis_name(SIZE, precision=precision)


def quantity_of(axis: str) -> str:
    """Return the quantity of an axis, on any hardware and at any precision: `memory_bytes`."""
    return axis.partition("@")[0]


@lru_cache(_REMEMBERED)
def conditions_of(axis: str) -> AxisConditions:
    """Return the hardware, the precision and the number of threads that an axis names."""
    _, *named = axis.split("@")
    precision = Quantization(named.pop()) if named and named[-1] in _PRECISIONS else Quantization.NONE
    threads = next((int(name.removesuffix(_THREADS)) for name in named[1:] if name.endswith(_THREADS)), 1)
    return AxisConditions(named[0] if named else None, precision, threads)


def hardware_of(axis: str) -> str | None:
    """Return the hardware of a latency axis, None for every other axis."""
    return conditions_of(axis).hardware if quantity_of(axis) == LATENCY else None


def threads_of(axes: Iterable[str]) -> int:
    """Return the number of threads that the axes of a goal are for: one where none depends on it."""
    return max((conditions_of(axis).threads for axis in axes), default=1)


@lru_cache(_REMEMBERED)
def source_axis(axis: str) -> str:
    """Return the axis on which the source (float32) is the reference of a relative limit."""
    return axis_name(quantity_of(axis), conditions_of(axis).profile)


def least(budgets: Iterable[Budget]) -> dict[str, float]:
    """Return the least limit of several budgets on each axis."""
    limits: dict[str, float] = {}
    for budget in budgets:
        limits |= {axis: min(limit, limits.get(axis, limit)) for axis, limit in budget.items()}
    return limits


def meets(costs: Costs, budget: Budget) -> bool:
    """Check whether every limited axis is within its limit."""
    return all(costs[axis] <= limit for axis, limit in budget.items())


def exceeded(costs: Costs, budget: Budget) -> list[str]:
    """Return the axes over their limits, the furthest first."""
    over = [axis for axis, limit in budget.items() if costs[axis] > limit]
    return sorted(over, key=lambda axis: -costs[axis] / budget[axis])


def share_left(costs: Costs, budget: Budget) -> float:
    """Return the share of costs that the tightest limit leaves; 1 where none is below them."""
    return min((limit / costs[axis] for axis, limit in budget.items() if costs[axis] > limit), default=1.0)


def excess(costs: Costs, budget: Budget) -> str:
    """Describe the axes over their limits, the furthest first; empty where there are none."""
    return ", ".join(
        f"{axis} {costs[axis]:,.4g} over {budget[axis]:,.4g}" for axis in exceeded(costs, budget)
    )
