"""Costs and budgets: the axes along which networks are measured and goals are set (paper 4.1)."""

from collections.abc import Mapping
from typing import TypeAlias

FLOPS = "flops"
PARAMS = "params"
MEMORY = "memory_bytes"
SIZE = "size_bytes"
LATENCY = "latency_ms"

#: axis -> cost of a network. Latency has one axis per hardware profile: `latency_ms@jetson-nano`.
Costs: TypeAlias = Mapping[str, float]

#: axis -> upper limit. An axis that is absent is unconstrained.
Budget: TypeAlias = Mapping[str, float]


def latency_axis(hardware: str) -> str:
    """The axis of latency on one hardware profile."""
    return f"{LATENCY}@{hardware}"


def hardware_of(axis: str) -> str | None:
    """The hardware profile of a latency axis, None for every other axis."""
    quantity, _, hardware = axis.partition("@")
    return hardware if quantity == LATENCY and hardware else None


def meets(costs: Costs, budget: Budget) -> bool:
    """Whether every limited axis is within its limit."""
    return all(costs[axis] <= limit for axis, limit in budget.items())


def exceeded(costs: Costs, budget: Budget) -> list[str]:
    """The axes over their limits, the furthest first."""
    over = [axis for axis, limit in budget.items() if costs[axis] > limit]
    return sorted(over, key=lambda axis: -costs[axis] / budget[axis])
