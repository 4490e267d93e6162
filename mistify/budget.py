"""Costs and budgets: the axes along which networks are measured and goals are set (paper 4.1)."""

from collections.abc import Mapping
from typing import TypeAlias

from mistify.quantization import Quantization

FLOPS = "flops"
PARAMS = "params"
MEMORY = "memory_bytes"
SIZE = "size_bytes"
LATENCY = "latency_ms"

#: axis -> cost of a network. Latency has one axis per hardware profile: `latency_ms@jetson-nano`. Memory and
#: size have one per precision: `memory_bytes` is of float32, `memory_bytes@int8` of int8.
Costs: TypeAlias = Mapping[str, float]

#: axis -> upper limit. An axis that is absent is unconstrained.
Budget: TypeAlias = Mapping[str, float]


def latency_axis(hardware: str) -> str:
    """The axis of latency on one hardware profile."""
    return f"{LATENCY}@{hardware}"


def memory_axis(precision: Quantization) -> str:
    """The axis of memory at one precision."""
    return _axis_at(MEMORY, precision)


def size_axis(precision: Quantization) -> str:
    """The axis of the package's size at one precision."""
    return _axis_at(SIZE, precision)


def _axis_at(quantity: str, precision: Quantization) -> str:
    stored_as = precision.stored_as
    return quantity if stored_as is Quantization.NONE else f"{quantity}@{stored_as.value}"


def quantity_of(axis: str) -> str:
    """What an axis counts, on whatever hardware and at whatever precision: `memory_bytes`."""
    return axis.partition("@")[0]


def hardware_of(axis: str) -> str | None:
    """The hardware profile of a latency axis, None for every other axis."""
    quantity, _, hardware = axis.partition("@")
    return hardware if quantity == LATENCY and hardware else None


def source_axis(axis: str) -> str:
    """The axis on which the source, which comes in float32, is the measure of a relative limit."""
    return axis if hardware_of(axis) else quantity_of(axis)


def meets(costs: Costs, budget: Budget) -> bool:
    """Whether every limited axis is within its limit."""
    return all(costs[axis] <= limit for axis, limit in budget.items())


def exceeded(costs: Costs, budget: Budget) -> list[str]:
    """The axes over their limits, the furthest first."""
    over = [axis for axis, limit in budget.items() if costs[axis] > limit]
    return sorted(over, key=lambda axis: -costs[axis] / budget[axis])
