"""The expected time of a batch, as planned or for the rest of its work."""

from collections.abc import Iterable, Mapping
from typing import Final

from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal
from mistify_server.store.plans import BatchPlan

#: Seconds to start a worker and to package a goal, measured with small networks.
STARTING_SECONDS: Final = 5.0
PACKAGING_SECONDS: Final = 1.0

#: How many times as long a package takes at another precision: it is compared with one in float32.
QUANTIZING: Final = 2.5

#: Time to load and to evaluate the source, or for a preparation, in addition to its training steps.
OVERHEAD_STEPS: Final = 150

#: Seconds of a training step where none has been timed: small networks take 3 to 40 ms. Progress corrects it.
STEP_SECONDS: Final = 0.01


def batch_seconds(
    plan: BatchPlan,
    source: float,
    preparations: Mapping[str, float],
    nodes: Mapping[int, float],
    slots: int,
) -> float:
    """Return the expected seconds of a batch: limited by its longest path, or by the number of workers.

    Args:
        plan: The plan with the goal tree.
        source: Seconds for the source.
        preparations: Name (`BatchPlan.preparation_of`) -> seconds; without those that need no time.
        nodes: Index of each node -> seconds, including the packages of its goals.
        slots: Number of tasks that run at the same time.
    """
    ends: dict[int | None, float] = {None: 0.0}
    for node in plan.nodes:
        start = max(ends[node.parent], preparations.get(plan.preparation_of(node), 0.0))
        ends[node.index] = start + nodes[node.index]
    whole = sum(nodes.values()) + sum(preparations.values())
    return source + max(*ends.values(), whole / slots)


def packaging_seconds(goals: Iterable[Goal], adapting: float) -> float:
    """Return the expected seconds of goals' packages, those of adapting their branches included.

    Args:
        adapting: Seconds to adapt a network for one of the goals.
    """
    return sum(_packaging(goal) + _branches(goal) * adapting for goal in goals)


def _packaging(goal: Goal) -> float:
    """Return the expected seconds to convert and measure the networks of a goal's package."""
    networks = 1 if goal.spec.branches is None else goal.spec.branches.count
    is_float32 = goal.spec.quantization.precision is Quantization.NONE
    return networks * PACKAGING_SECONDS * (1 if is_float32 else QUANTIZING)


def _branches(goal: Goal) -> int:
    """Return the number of networks adapted for a goal's package in addition to the goal's own."""
    if goal.spec.branches is None:
        return 0
    # The goal's own network is a branch too, unless another branch is larger.
    return goal.spec.branches.count - (goal.spec.branches.shares[-1] == 1)
