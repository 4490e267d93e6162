"""Costs and budgets: the axes on which networks are measured and goals are set (paper 4.1).

The name of an axis contains its quantity and, if the quantity depends on them, hardware and precision:
`flops`, `latency_ms@jetson-nano`, `memory_bytes@int8`, and `memory_bytes@int8-inputs` if inputs and outputs
are int8 as well. The default precision is float32. The default number of threads is one; otherwise it is part
of the name: `latency_ms@host@4-threads@int8`.
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

#: The server's machine, on which packages are made and measured.
HOST_NAME: Final = "host"

#: axis -> cost of a network.
Costs: TypeAlias = Mapping[str, float]

#: axis -> upper limit. Absent axes are unlimited.
Budget: TypeAlias = Mapping[str, float]

_PRECISIONS = frozenset(precision.value for precision in Quantization)

_THREADS: Final = "-threads"

#: The last part of axes for packages with integer inputs and outputs, in place of the precision.
_INTEGER_INPUTS: Final = f"{Quantization.INT8.value}-inputs"

#: Size of the cache of parsed names: all goals of a job share a few names.
_CACHED_NAMES: Final = 1_000


class AxisConditions(NamedTuple):
    """The conditions encoded in an axis name.

    Attributes:
        hardware: None if the axis does not depend on it.
        precision: Float32 by default.
        threads: One by default.
        integer_inputs: Whether inputs and outputs of the package are int8 as well.
    """

    hardware: str | None
    precision: Quantization = Quantization.NONE
    threads: int = 1
    integer_inputs: bool = False

    @property
    def profile(self) -> str | None:
        """The hardware with its number of threads, in the format of `at_threads`."""
        return None if self.hardware is None else at_threads(self.hardware, self.threads)


def at_threads(hardware: str, threads: int) -> str:
    """Return the name of hardware with a number of threads: `host`, or `host@4-threads`."""
    return hardware if threads == 1 else f"{hardware}@{threads}{_THREADS}"


def axis_name(
    quantity: str,
    hardware: str | None = None,
    precision: Quantization = Quantization.NONE,
    *,
    integer_inputs: bool = False,
) -> str:
    """Return the axis of a quantity on the given hardware and at the given precision.

    Args:
        quantity: Its name.
        hardware: The hardware, which may include the number of threads and the precision, as in names of
            profiles; None if the quantity does not depend on it.
        precision: The precision of the package.
        integer_inputs: Whether inputs and outputs of an integer package are int8 as well.
    """
    if integer_inputs:
        return f"{quantity}@{_INTEGER_INPUTS}"
    stored_as = precision.stored_as
    if stored_as is Quantization.NONE or (hardware and hardware.endswith(f"@{stored_as.value}")):
        return "@".join(filter(None, (quantity, hardware)))
    return "@".join(filter(None, (quantity, hardware, stored_as.value)))


def latency_axis(hardware: str, precision: Quantization = Quantization.NONE) -> str:
    """Return the axis of latency on one hardware profile, at one precision."""
    return axis_name(LATENCY, hardware, precision)


def memory_axis(precision: Quantization, *, integer_inputs: bool = False) -> str:
    """Return the axis of memory at one precision.

    Args:
        precision: The precision of the package.
        integer_inputs: Whether inputs and outputs of an integer package are int8 as well.
    """
    return axis_name(MEMORY, precision=precision, integer_inputs=integer_inputs)


def size_axis(precision: Quantization) -> str:
    """Return the axis of the package's size at one precision."""
    return axis_name(SIZE, precision=precision)


def quantity_of(axis: str) -> str:
    """Return the quantity of an axis without hardware and precision: `memory_bytes`."""
    return axis.partition("@")[0]


@lru_cache(_CACHED_NAMES)
def conditions_of(axis: str) -> AxisConditions:
    """Return the hardware, the precision and the number of threads in an axis name."""
    _, *named = axis.split("@")
    if named[-1:] == [_INTEGER_INPUTS]:
        return AxisConditions(None, Quantization.INT8, integer_inputs=True)
    precision = Quantization(named.pop()) if named and named[-1] in _PRECISIONS else Quantization.NONE
    threads = next((int(name.removesuffix(_THREADS)) for name in named[1:] if name.endswith(_THREADS)), 1)
    return AxisConditions(named[0] if named else None, precision, threads)


def hardware_of(axis: str) -> str | None:
    """Return the hardware of a latency axis, None for every other axis."""
    return conditions_of(axis).hardware if quantity_of(axis) == LATENCY else None


def threads_of(axes: Iterable[str]) -> int:
    """Return the number of threads in the axes of a goal; one if no axis has it."""
    return max((conditions_of(axis).threads for axis in axes), default=1)


@lru_cache(_CACHED_NAMES)
def source_axis(axis: str) -> str:
    """Return the axis of the source (float32) to which a relative limit refers."""
    return axis_name(quantity_of(axis), conditions_of(axis).profile)


def of_package(costs: Costs, *, integer_inputs: bool) -> dict[str, float]:
    """Return costs without those of packages whose inputs and outputs have other types.

    Args:
        costs: Costs of a network in all packages that it can have.
        integer_inputs: Whether inputs and outputs of the integer package are int8 as well.
    """
    of_integers = {axis for axis in costs if conditions_of(axis).integer_inputs}
    of_floats = {axis_name(quantity_of(axis), precision=Quantization.INT8) for axis in of_integers}
    others = of_floats if integer_inputs else of_integers
    return {axis: cost for axis, cost in costs.items() if axis not in others}


def least(budgets: Iterable[Budget]) -> dict[str, float]:
    """Return the smallest limit of several budgets on each axis."""
    limits: dict[str, float] = {}
    for budget in budgets:
        limits |= {axis: min(limit, limits.get(axis, limit)) for axis, limit in budget.items()}
    return limits


def meets(costs: Costs, budget: Budget) -> bool:
    """Check whether every limited axis is within its limit."""
    return all(costs[axis] <= limit for axis, limit in budget.items())


def exceeded(costs: Costs, budget: Budget) -> list[str]:
    """Return the axes over their limits, the largest excess first."""
    over = [axis for axis, limit in budget.items() if costs[axis] > limit]
    return sorted(over, key=lambda axis: -costs[axis] / budget[axis])


def tightest_ratio(costs: Costs, budget: Budget) -> float:
    """Return the ratio of limit to cost on the tightest axis; 1 if all limits are met."""
    return min((limit / costs[axis] for axis, limit in budget.items() if costs[axis] > limit), default=1.0)
