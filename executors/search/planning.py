"""The final network of an edge, where it is planned before anything is cut."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import cbrt, exp
from typing import Final, TypeAlias

import keras

from executors.contract.assignment import Assignment
from executors.pruning.allocation import Allocation, AllocationTerms, Weights, allocate, allocations
from executors.pruning.state import PruningState
from executors.search.inheritance import Inheritance
from executors.search.space import Architecture
from executors.structure import Structure, Widths, removable_blocks, remove_named_blocks
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, conditions_of, exceeded, hardware_of

#: Networks without some blocks that are tried beside the one with all, and the worth that they have to gain.
_RIVALS: Final = 2
_LEAST_GAIN: Final = 0.05

#: The share of its accuracy by which a network without some blocks may be behind after a trial. ResNet-8 is
#: by a twelfth without a block, and ahead by three points in the end; the encoder of SNIPS by three quarters.
_BEHIND: Final = 0.15

#: Worth by which a network falls short of what its blocks were chosen for: they are chosen again.
_MISJUDGED: Final = 0.25

#: The least that a group or a block counts, as a share of the one that counts most.
_LEAST_WEIGHT: Final = 0.1

#: Returns how well a network does that was cut and trained for a while.
TryOut: TypeAlias = Callable[[Allocation, Assignment], float]


@dataclass(frozen=True)
class _Decision:
    """The blocks that are left out on an edge, and the weight of the groups there.

    Attributes:
        model: The network at the start of the edge.
        budget: The edge's limits.
        left_out: Names of the blocks.
        worth: Worth of the network without these blocks, by the hardware profiles at that time.
        weights: Weight of each group.
        blocks: Weight of each block.
    """

    model: keras.Model
    budget: Budget
    left_out: frozenset[str]
    worth: float
    weights: Weights
    blocks: Weights

    def of(self, assignment: Assignment) -> bool:
        """Check whether it was made for an edge, whatever the edge's profiles were."""
        return self.model is assignment.model and self.budget == assignment.budget


class Planner:
    """Plans widths and depth under limits on costs that fall in steps with a width, latency above all.

    It also plans where limits can only be met without some blocks. Widths follow the hardware profiles, which
    measurements of a plan correct; the choice of blocks is only revised where such a correction leaves a
    network that is worth much less.

    Args:
        state_of: Returns the state of a copy of an edge's network.
        try_out: Finds out which blocks a network can do without.
    """

    def __init__(self, state_of: Callable[[Assignment], PruningState], try_out: TryOut) -> None:
        self._state_of = state_of
        self._try_out = try_out
        self._decision: _Decision | None = None

    def plan(self, assignment: Assignment, structure: Structure, widths: Widths) -> Allocation | None:
        """Return the final network of an edge; None where the importance of units decides.

        Args:
            structure: The structure of the edge's network.
            widths: Number of units left in each group.
        """
        budget, profiles = assignment.budget, assignment.profiles
        if not exceeded(costs_of(structure.network(widths), profiles), budget):
            return None
        narrowest = costs_of(structure.network(structure.least_widths), profiles)
        if not any(map(_in_steps, budget)) and not exceeded(narrowest, budget):
            return None
        decision = self._decision
        if decision is None or not decision.of(assignment):
            return self._decide(assignment, structure, widths, *weights_of(self._state_of(assignment)))
        left = remove_named_blocks(structure, decision.left_out)
        own = {name: widths[name] for name in left.groups}
        target = allocate(left, own, _terms(assignment, decision.weights, decision.blocks))
        if target is None or target.worth < decision.worth - _MISJUDGED:
            return self._decide(assignment, structure, widths, decision.weights, decision.blocks)
        return replace(target, left_out=decision.left_out)

    def _decide(
        self, assignment: Assignment, structure: Structure, widths: Widths, weights: Weights, blocks: Weights
    ) -> Allocation | None:
        """Return the network for a plan of an edge; later plans keep its blocks."""
        found = allocations(structure, widths, _terms(assignment, weights, blocks))
        if not found:
            return None
        best = self._best(found, assignment)
        self._decision = _Decision(
            assignment.model, assignment.budget, best.left_out, best.worth, weights, blocks
        )
        return best

    def _best(self, found: Sequence[Allocation], assignment: Assignment) -> Allocation:
        """Return the network with all blocks, or a more worthy one without some that can do without them.

        The worth of a block differs: a residual network hardly misses one of three, an encoder of texts
        cannot do without attention. So both are tried out. A network takes longer to learn to do without a
        block than with fewer channels, so it may be somewhat behind at that time.
        """
        first, *others = found
        better = (one for one in others if one.worth > first.worth + _LEAST_GAIN)
        rivals = sorted(better, key=lambda one: -one.worth)[:_RIVALS]
        if not rivals:
            return first
        metric = assignment.setup.metric
        expected = metric.after(self._try_out(first, assignment), _BEHIND)
        able = (one for one in rivals if metric.reaches(self._try_out(one, assignment), expected))
        return next(able, first)


def weights_of(state: PruningState) -> tuple[dict[str, float], dict[str, float]]:
    """Return the weight of each group and each block of a network.

    A group's weight is the loss with half of it, a block's the loss without it, once the rest has taken over.
    Training recovers much of that loss, so its cube root counts.
    """
    inheritance, widths = Inheritance.of(state), state.masks.widths

    def loss(changed: Widths, left_out: frozenset[str] = frozenset()) -> float:
        architecture = Architecture({**widths, **changed}, left_out)
        return exp(-inheritance.quality(architecture, remove_named_blocks(state.structure, left_out)))

    whole = loss({})
    groups = {name: loss({name: -(-width // 2)}) - whole for name, width in widths.items()}
    names = (block.name for block in removable_blocks(state.structure))
    return _roots(groups), _roots({name: loss({}, frozenset([name])) - whole for name in names})


def _in_steps(axis: str) -> bool:
    """Check whether costs on an axis fall with a width in steps, or even rise now and then.

    Latencies do, as kernels compute several channels at once; so do bytes where small kernels stay float32.
    """
    return bool(hardware_of(axis) or conditions_of(axis).precision.storage.least_kernel)


def _roots(losses: Mapping[str, float]) -> dict[str, float]:
    """Return the cube roots of some losses, none of which is negligible beside the largest."""
    roots = {name: cbrt(max(loss, 0.0)) for name, loss in losses.items()}
    least = _LEAST_WEIGHT * max(roots.values(), default=0.0) or 1.0
    return {name: max(root, least) for name, root in roots.items()}


def _terms(assignment: Assignment, weights: Weights, blocks: Weights) -> AllocationTerms:
    return AllocationTerms(assignment.budget, assignment.profiles, weights, blocks, assignment.source)
