"""Planning of an edge's final network before anything is cut."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import cbrt, exp
from typing import Final, TypeAlias

import keras

from executors.contract.assignment import Assignment
from executors.pruning.allocation import Allocation, AllocationTerms, Weights, allocate, allocations
from executors.pruning.loss_table import LossTable
from executors.pruning.state import PruningState
from executors.pruning.table_widths import widths_within
from executors.search.inheritance import Inheritance
from executors.search.space import Architecture
from executors.structure import Structure, Widths, removable_blocks, remove_named_blocks
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, conditions_of, exceeded, hardware_of

#: Maximum number of networks with removed blocks to compare with the one with all blocks, and their minimum
#: gain in worth.
_RIVALS: Final = 2
_LEAST_GAIN: Final = 0.05

#: The share of its accuracy that a network with removed blocks may lose against the other in a trial. Without
#: one block, ResNet-8 loses a twelfth in the trial, and is three points better in the end; the SNIPS encoder
#: loses three quarters.
_TRIAL_TOLERANCE: Final = 0.15

#: If a network's worth falls this much below the worth for which its blocks were chosen, they are chosen
#: again.
_REPLAN_LOSS: Final = 0.25

#: Minimum weight of a group or block, as a share of the largest weight.
_LEAST_WEIGHT: Final = 0.1

#: A function that returns the score of a network after trial cuts and a short training.
TryOut: TypeAlias = Callable[[Allocation, Assignment], float]


@dataclass(frozen=True)
class _Decision:
    """The removed blocks of an edge, and the weights of its groups.

    Attributes:
        model: The network at the start of the edge.
        budget: The edge's limits.
        removed_blocks: Names of the removed blocks.
        worth: Worth of the network without these blocks, with the hardware profiles at that time.
        weights: Weight of each group.
        blocks: Weight of each block.
    """

    model: keras.Model
    budget: Budget
    removed_blocks: frozenset[str]
    worth: float
    weights: Weights
    blocks: Weights

    def of(self, assignment: Assignment) -> bool:
        """Check whether the decision was made for an edge, regardless of the edge's profiles."""
        return self.model is assignment.model and self.budget == assignment.budget


class Planner:
    """A planner of the widths of an edge's final network, and of its depth if limits require it.

    If the losses of the source's groups were measured, widths have the least sum of losses. Otherwise widths
    are only planned together with the depth, by the worth of an allocation.

    The depth is planned under limits on costs that are step functions of width, mainly latency, and if the
    limits can only be met with removed blocks. Widths follow the hardware profiles, which are corrected by
    measurements of a plan. The choice of blocks is only revised if such a correction leaves a network of much
    lower worth.

    Args:
        state_of: Returns the state of a copy of an edge's network.
        try_out: Measures how well a network does without some blocks.
    """

    def __init__(self, state_of: Callable[[Assignment], PruningState], try_out: TryOut) -> None:
        self._state_of = state_of
        self._try_out = try_out
        self._decision: _Decision | None = None

    def plan(self, assignment: Assignment, structure: Structure, widths: Widths) -> Allocation | None:
        """Return the final network of an edge; None if units are to be cut by importance instead.

        Args:
            structure: The structure of the edge's network.
            widths: Number of units left in each group.
        """
        budget, profiles = assignment.budget, assignment.profiles
        if not exceeded(costs_of(structure.network(widths), profiles), budget):
            return None
        narrowest = costs_of(structure.network(structure.least_widths), profiles)
        if not any(map(_in_steps, budget)) and not exceeded(narrowest, budget):
            narrowed = _by_losses(assignment, structure, widths)
            return None if narrowed is None else Allocation(narrowed, frozenset(), 0.0)
        target = self._with_depth(assignment, structure, widths)
        if target is None:
            return None
        left = remove_named_blocks(structure, target.removed_blocks)
        narrowed = _by_losses(assignment, left, {name: widths[name] for name in left.groups})
        return target if narrowed is None else replace(target, widths=narrowed)

    def _with_depth(self, assignment: Assignment, structure: Structure, widths: Widths) -> Allocation | None:
        """Return the network of highest worth with its choice of blocks; None if none meets the limits."""
        decision = self._decision
        if decision is None or not decision.of(assignment):
            return self._decide(assignment, structure, widths, *weights_of(self._state_of(assignment)))
        left = remove_named_blocks(structure, decision.removed_blocks)
        own = {name: widths[name] for name in left.groups}
        target = allocate(left, own, _terms(assignment, decision.weights, decision.blocks))
        if target is None or target.worth < decision.worth - _REPLAN_LOSS:
            return self._decide(assignment, structure, widths, decision.weights, decision.blocks)
        return replace(target, removed_blocks=decision.removed_blocks)

    def _decide(
        self, assignment: Assignment, structure: Structure, widths: Widths, weights: Weights, blocks: Weights
    ) -> Allocation | None:
        """Plan the network of an edge; later plans keep its blocks."""
        plans = allocations(structure, widths, _terms(assignment, weights, blocks))
        if not plans:
            return None
        best = self._best(plans, assignment)
        self._decision = _Decision(
            assignment.model, assignment.budget, best.removed_blocks, best.worth, weights, blocks
        )
        return best

    def _best(self, plans: Sequence[Allocation], assignment: Assignment) -> Allocation:
        """Return the network with all blocks, or one of higher worth that does well without some.

        The importance of blocks differs: a residual network hardly needs one of three, whereas a text encoder
        cannot do without attention. So trials compare them. A network takes longer to adapt to a missing
        block than to fewer channels, so it may be slightly behind in its trial.
        """
        first, *others = plans
        better = (one for one in others if one.worth > first.worth + _LEAST_GAIN)
        rivals = sorted(better, key=lambda one: -one.worth)[:_RIVALS]
        if not rivals:
            return first
        metric = assignment.setup.metric
        expected = metric.after(self._try_out(first, assignment), _TRIAL_TOLERANCE)
        able = (one for one in rivals if metric.reaches(self._try_out(one, assignment), expected))
        return next(able, first)


def weights_of(state: PruningState) -> tuple[dict[str, float], dict[str, float]]:
    """Return the weight of each group and each block of a network.

    A group's weight is based on the loss with half of it, a block's on the loss without it, after
    compensation. Training recovers much of that loss, so the weight is its cube root.
    """
    inheritance, widths = Inheritance.of(state), state.masks.widths

    def loss(changed: Widths, removed_blocks: frozenset[str] = frozenset()) -> float:
        architecture = Architecture({**widths, **changed}, removed_blocks)
        return exp(-inheritance.quality(architecture, remove_named_blocks(state.structure, removed_blocks)))

    whole = loss({})
    groups = {name: loss({name: -(-width // 2)}) - whole for name, width in widths.items()}
    names = (block.name for block in removable_blocks(state.structure))
    return _roots(groups), _roots({name: loss({}, frozenset([name])) - whole for name in names})


def _by_losses(assignment: Assignment, structure: Structure, widths: Widths) -> dict[str, int] | None:
    """Return the widths with the least sum of measured losses; None if the losses are not known."""
    table = LossTable.loaded(assignment.prepared)
    if not table.covers(widths):
        return None
    return widths_within(table, structure, widths, assignment.budget, assignment.profiles)


def _in_steps(axis: str) -> bool:
    """Check whether costs on an axis are a step function of width, possibly not monotonic.

    Latency is, because kernels compute several channels at once; so are sizes if small kernels stay float32.
    """
    return bool(hardware_of(axis) or conditions_of(axis).precision.storage.least_kernel)


def _roots(losses: Mapping[str, float]) -> dict[str, float]:
    """Return the cube roots of losses, with a lower bound relative to the largest."""
    roots = {name: cbrt(max(loss, 0.0)) for name, loss in losses.items()}
    least = _LEAST_WEIGHT * max(roots.values(), default=0.0) or 1.0
    return {name: max(root, least) for name, root in roots.items()}


def _terms(assignment: Assignment, weights: Weights, blocks: Weights) -> AllocationTerms:
    return AllocationTerms(assignment.budget, assignment.profiles, weights, blocks, assignment.source)
