"""MorphNet: sparsify under structure losses, cut units below a threshold (paper 4.2, [31]).

Each iteration trains with the structure losses, then cuts the units whose importance is below the threshold;
the remaining units take over from them as well as they can without training. `adjust` turns the knobs: the
strength of each structure loss, and the threshold, which is raised as far as the next small step towards the
goal requires. Where the final network of an edge is planned, as under limits on latency, each group is cut
towards its width there, and blocks are left out.
"""

from bisect import bisect_left
from collections.abc import Mapping
from math import ceil, sqrt
from typing import Final, TypeAlias

import keras
import numpy as np
import numpy.typing as npt

from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.assignment import Assignment
from executors.contract.executor import StuckError
from executors.contract.params import Params
from executors.pruning.allocation import Allocation
from executors.pruning.executor import IterativePruningExecutor
from executors.pruning.reconstruction import Moments
from executors.pruning.structure_loss import StructureLoss
from executors.search.planning import Planner
from executors.structure import Keep, Structure, analyse, narrow, remove_named_blocks
from executors.training.trainer import constant, cosine
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, Costs, exceeded

#: The most that a unit of magnitude 1 adds to the loss, as a mean over the groups. More would drive all
#: scales of a network of hundreds of millions of multiply-adds to zero before the first cut.
STRONGEST: Final = 0.03

#: Of what a group has beside its last unit, no less is left than this power of the scale at which all groups
#: alike would meet the limits, as long as others can be cut. Importance says little about units of different
#: groups, and nothing about what they save: to save memory where an embedding has nearly all of it, all the
#: rest would be cut to nothing. The last unit does not count, so that of four attention heads two stay where
#: a fifth of all is left: with one, the encoder of SNIPS lost five points.
_LOPSIDED: Final = 1.5

#: Scales that are tried: so many to a halving, and so many halvings.
_SCALES_PER_HALVING: Final = 16
_HALVINGS: Final = 16

#: Widths of a group whose costs are computed before a cut, about.
_WIDTHS: Final = 32

Array: TypeAlias = npt.NDArray[np.float64]

#: Training steps before each of the two cuts of a trial, and half of those after them.
_TRIAL_STEPS: Final = 60

#: A unit that can be cut: its importance, its group, its index there.
CuttableUnit: TypeAlias = tuple[float, str, int]


class MorphNetExecutor(IterativePruningExecutor):
    """Gradient-based shrinking of channel groups."""

    _params: MorphNetParams

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._weights: dict[str, float] = {}
        self._target: Allocation | None = None
        self._start: dict[str, int] = {}
        self._planner = Planner(self._state_of, self._try_out)

    def init(self, assignment: Assignment) -> None:
        """Start an edge, with the same share of attention for each axis of its budget."""
        super().init(assignment)
        state = self._state
        self._set_out(assignment, self._planner.plan(assignment, state.structure, state.masks.widths))

    def preview(self, assignment: Assignment) -> keras.Model | None:
        """Return a network at the widths, and without the blocks, that were planned under the limits."""
        structure = analyse(assignment.model, assignment.source.rules)
        target = self._planner.plan(assignment, structure, structure.widths)
        if target is None:
            return None
        left = remove_named_blocks(structure, target.left_out)
        keep = {name: np.arange(group.size) < target.widths[name] for name, group in left.groups.items()}
        return narrow(left, keep)

    def _set_out(self, assignment: Assignment, target: Allocation | None) -> None:
        """Set out from the present network towards a target, if there is one."""
        self._weights = {axis: 1 / len(assignment.budget) for axis in assignment.budget}
        self._start = dict(self._state.masks.widths)
        self._target = target

    def _try_out(self, target: Allocation, assignment: Assignment) -> float:
        """Return how well a network does on the validation data once it was cut and trained for a while."""
        scout = type(self)(self._params)
        scout._current = scout._state_of(assignment).at_start_of(assignment)
        scout._set_out(assignment, target)
        scout.adjust(dict.fromkeys(assignment.budget, 0.0))
        steps = _TRIAL_STEPS if self._params.steps_of_cut else 0
        for done in (0.5, 1.0):
            scout.trainer.train(constant(steps))
            scout._cut_towards(target, done)
        scout.trainer.train(cosine(2 * steps))
        scout.trainer.apply_average()
        setup, evaluation = assignment.setup, scout.trainer.evaluation
        evaluation.recalibrate(setup.train)
        return evaluation.score(setup.validation, setup.metric)

    def adjust(self, weights: Mapping[str, float]) -> None:
        """Set the strengths of the structure losses to the weighted marginal cost of each group."""
        self._weights = dict(weights)
        state = self._state
        strength = min(self._params.init_reg_strength * state.start[FLOPS], STRONGEST)
        if state.loss is not None:
            state.loss.set_strengths(
                {name: strength * pressure for name, pressure in self._pressures().items()}
            )

    def _structure_loss(self, structure: Structure) -> StructureLoss:
        return StructureLoss(structure)

    def _rebuild(self, structure: Structure) -> None:
        super()._rebuild(structure)
        self.adjust(self._weights)

    def _cut(self, done: float) -> None:
        limits = self._state.limits(done)
        if self._target is not None:
            self._cut_towards(self._target, done)
            if done == 1:  # if the limits do not hold yet, the importance of units decides
                self._target = None
        elif self._cut_by_importance(limits) and exceeded(self.measure(), limits):
            over = ", ".join(exceeded(self.measure(), self._state.assignment.budget))
            raise StuckError(f"{over} over the limit with every channel group at its minimum")

    def _cut_towards(self, target: Allocation, done: float) -> None:
        """Leave out the blocks that are to go, and cut the least important units of each group.

        Args:
            target: The network at the budget.
            done: Share of the way to the target, along which widths fall geometrically.
        """
        state = self._state
        moments = state.compensation.moments(state.assignment.setup.train)
        values, keep = state.values(moments), {name: mask.copy() for name, mask in state.masks.keep.items()}
        for name, width in target.widths.items():
            left = np.flatnonzero(keep[name])
            start = self._start[name]
            now = width if done == 1 else ceil(start * (width / start) ** done)
            order = left[np.argsort(values[name][left], kind="stable")]
            keep[name][order[: max(0, len(left) - now)]] = False
        self._adopt(keep, moments, remove_named_blocks(state.structure, target.left_out))

    def _cut_by_importance(self, limits: Costs) -> bool:
        """Cut the dead units and, above the threshold, the least important ones until the limits hold.

        Returns:
            Whether nothing is left to cut.
        """
        state = self._state
        moments = state.compensation.moments(state.assignment.setup.train)
        candidates = self._candidates(moments, limits)
        wanted = self._cuts_until(limits, candidates)
        dead = sum(importance < self._params.threshold for importance, _, _ in candidates)
        gone = min(dead, self._cuts_until(self._state.assignment.budget, candidates))
        cut = self._needed(candidates[:gone], candidates[gone:wanted], limits)
        self._adopt(self._keep_without(cut), moments)
        return wanted == len(candidates)

    def _candidates(self, moments: Mapping[int, Moments], limits: Costs) -> list[CuttableUnit]:
        """Return every unit that can be cut, in the order in which they are worth it.

        The most important units of a group stay, at least one, and so do all groups without costs on the
        relevant axes. A unit counts more, the fewer others of its group are left: norms say little about
        units of different groups, and a group that lost more than others is a bottleneck. (The others count,
        not all: one of two attention heads is half of its group.) A unit also counts with the root of the
        number of layers that make it: a cut in a residual stream is a cut in every block.

        Costs count within a group: units come in blocks, as wide as saves the most for the loss, because a
        device computes several channels at once. Between groups they act through the structure losses, and
        through `_LOPSIDED`: living units without which a group would have lost too much come last. Dividing
        by costs there as well starves the layers near the input.
        """
        pressure = self._marginal_costs()
        narrowest = self._scale(limits) ** _LOPSIDED
        candidates = []
        for name, values in self._state.values(moments).items():
            left = np.flatnonzero(self._state.masks.keep[name])
            group = self._state.structure.groups[name]
            # A grouped convolution of one group is an ordinary one, whose channels are a group of their own.
            source = self._state.assignment.source.groups.get(name, group)
            others = max(1, source.size - 1) / max(1, len(left) - 1)
            importance = values * others * sqrt(group.makers)
            cuttable = left[np.argsort(importance[left], kind="stable")][: -group.least]
            if pressure[name] > 0 and len(cuttable):
                spare = len(left) - 1 - ceil(narrowest * (source.size - 1))
                candidates += [
                    (rank, importance[unit], name, place, unit)
                    for place, (unit, rank) in enumerate(
                        zip(cuttable, self._ranks(name, importance[cuttable], spare), strict=True)
                    )
                ]
        return [(float(importance), name, int(unit)) for _, importance, name, _, unit in sorted(candidates)]

    def _ranks(self, name: str, importance: Array, spare: int) -> list[tuple[bool, bool, float]]:
        """Return the rank of each of a group's units: dead, then spare, then by importance.

        Args:
            name: Name of the group.
            importance: Importance of the group's units [units], ascending.
            spare: Number of units that can be cut before the group has lost too much.
        """
        worth = worth_by_blocks(importance, self._savings(name, len(importance)))
        dead = importance < self._params.threshold
        return [
            (
                not dead[place],
                bool(place >= spare and not dead[place]),
                float(importance[place] if dead[place] else worth[place]),
            )
            for place in range(len(importance))
        ]

    def _savings(self, name: str, units: int) -> dict[int, float]:
        """Return the savings of cutting given numbers of a group's units, on the axes that matter now."""
        widths = self._state.masks.widths
        step = 2 ** max(0, (widths[name] // _WIDTHS).bit_length() - 1) if widths[name] >= _WIDTHS else 1
        counts = [
            count for count in range(1, units + 1) if (widths[name] - count) % step == 0 or count == units
        ]
        now = self.measure()
        return {count: self._saving(now, {**widths, name: widths[name] - count}) for count in counts}

    def _saving(self, now: Costs, widths: Mapping[str, int]) -> float:
        network = self._state.structure.network(widths)
        less = costs_of(network, self._state.assignment.profiles, only=self._weights)
        return sum(weight * (now[axis] - less[axis]) / now[axis] for axis, weight in self._weights.items())

    def _scale(self, limits: Costs) -> float:
        """Return the share of each of the source's groups with which it would meet the limits."""
        source = self._state.assignment.source

        def holds(step: int) -> bool:
            scale = 2 ** (-step / _SCALES_PER_HALVING)
            widths = {
                name: max(group.least, round(scale * group.size)) for name, group in source.groups.items()
            }
            profiles = self._state.assignment.profiles
            return not exceeded(costs_of(source.network(widths), profiles, only=limits), limits)

        steps = range(_SCALES_PER_HALVING * _HALVINGS)
        return float(2 ** (-bisect_left(steps, True, key=holds) / _SCALES_PER_HALVING))

    def _cuts_until(self, limits: Costs, candidates: list[CuttableUnit]) -> int:
        """Return the number of candidates that have to go to meet the limits; costs fall with every cut."""
        return bisect_left(
            range(len(candidates)), True, key=lambda cuts: self._hold(limits, candidates[:cuts])
        )

    def _needed(self, gone: list[CuttableUnit], cut: list[CuttableUnit], limits: Costs) -> list[CuttableUnit]:
        """Return the candidates that go in any case, and as few of the others as the limits allow.

        Hardware computes several channels at once: between two such steps a cut saves little or nothing. So
        units are put back, the most important first, until their group takes no more; then those of other
        groups.
        """

        def fits(back: int) -> bool:
            return self._hold(limits, gone + cut[: len(cut) - back])

        while cut:
            counts = range(1, len(cut) + 1)
            back = bisect_left(counts, True, key=lambda back: not fits(back)) if fits(1) else 0
            cut = cut[: len(cut) - back]
            if cut:
                _, full, _ = cut[-1]
                gone = gone + [unit for unit in cut if unit[1] == full]
                cut = [unit for unit in cut if unit[1] != full]
        return gone

    def _hold(self, limits: Costs, cut: list[CuttableUnit]) -> bool:
        """Check whether the limits hold without these units."""
        widths = {name: int(mask.sum()) for name, mask in self._keep_without(cut).items()}
        network = self._state.structure.network(widths)
        return not exceeded(costs_of(network, self._state.assignment.profiles, only=limits), limits)

    def _keep_without(self, cut: list[CuttableUnit]) -> Keep:
        keep = {name: mask.copy() for name, mask in self._state.masks.keep.items()}
        for _, name, unit in cut:
            keep[name][unit] = False
        return keep

    def _pressures(self) -> dict[str, float]:
        """Return the marginal costs of the groups that are to be cut, 0 for the others."""
        widths, least = self._state.masks.widths, self._state.structure.least_widths
        target = {**least, **(self._target.widths if self._target else {})}
        return {
            name: cost if target[name] < widths[name] else 0.0
            for name, cost in self._marginal_costs().items()
        }

    def _marginal_costs(self) -> dict[str, float]:
        """Return a unit's cost in each group on the axes that matter now, over the mean of the groups."""
        widths = self._state.masks.widths
        now = self.measure()
        costs = {}
        for name, width in widths.items():
            costs[name] = self._saving(now, {**widths, name: width - 1})
        mean = np.mean(list(costs.values())) or 1.0
        return {name: float(value / mean) for name, value in costs.items()}


def worth_by_blocks(importance: Array, savings: Mapping[int, float]) -> Array:
    """Return the importance of units [units], evened out over the blocks that are best cut together.

    The blocks are the edges of the lower hull of loss over savings. A unit of a block that saves as much as
    the group's mean counts with its mean importance; a unit of a block that saves twice that, with half.

    Args:
        importance: Importance of each unit [units], in the order in which they are cut.
        savings: Number of units -> costs saved by cutting the first so many units; the last number is all of
            them.
    """
    lost = np.concatenate([[0.0], np.cumsum(importance)])
    counts = [0, *savings]
    saved = {0: 0.0, **savings}
    mean = saved[counts[-1]] / len(importance)
    worth, start = np.full(len(importance), np.inf), 0
    while start < len(importance):
        ahead = [count for count in counts if count > start and saved[count] > saved[start]]
        if not ahead:
            break
        ratios = [(lost[count] - lost[start]) / (saved[count] - saved[start]) for count in ahead]
        end = ahead[int(np.argmin(ratios))]
        worth[start:end] = min(ratios) * mean
        start = end
    return worth
