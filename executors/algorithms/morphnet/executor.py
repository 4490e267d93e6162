"""MorphNet: sparsify under structure losses, cut units below a threshold (paper 4.2, [31]).

Each iteration trains with the structure losses, then cuts the units with an importance below the threshold;
the remaining units compensate for them as far as possible without training. `adjust` sets the strength of
each structure loss. The threshold is raised as far as the next small step towards the goal requires. If the
final network of an edge is planned, each group is cut towards its planned width, and the planned blocks are
removed. Widths are planned if the losses of the source's groups were measured in a preparation, or under
limits such as those on latency.
"""

from bisect import bisect_left
from collections.abc import Mapping
from math import ceil, sqrt
from typing import Final, TypeAlias

import keras
import numpy as np
import numpy.typing as npt

from executors.algorithms.morphnet.params import MorphNetParams
from executors.algorithms.morphnet.profile import steps_of_table
from executors.contract.assignment import Assignment
from executors.contract.executor import StuckError
from executors.contract.params import Params
from executors.contract.preparation import PreparationProgress
from executors.pruning.allocation import Allocation
from executors.pruning.cut_losses import CutLosses
from executors.pruning.executor import IterativePruningExecutor
from executors.pruning.loss_table import LossTable
from executors.pruning.reconstruction import Moments
from executors.pruning.structure_loss import StructureLoss
from executors.search.planning import Planner
from executors.structure import Keep, Structure, analyse, narrow, remove_named_blocks
from executors.timing import activity
from executors.training.trainer import constant, cosine
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, Costs, exceeded
from mistify.jobs.formatting import excess

#: The maximum loss added by a unit of magnitude 1, as a mean over the groups. Larger values would drive all
#: scales of a network with hundreds of millions of multiply-adds to zero before the first cut.
STRONGEST: Final = 0.03

#: Exponent of the lower bound on a group's width: while other groups can be cut, a group keeps at least this
#: power of the uniform scale that would meet the limits. Importance is hardly comparable between groups, and
#: ignores savings: to save memory in a network where an embedding holds nearly all of it, every other group
#: would be cut to nothing. The last unit does not count, so that two of four attention heads remain at a
#: scale of a fifth: with one head, the SNIPS encoder lost five points.
_GROUP_BOUND_EXPONENT: Final = 1.5

#: Resolution of the search for the uniform scale: scales per halving, and number of halvings.
_SCALES_PER_HALVING: Final = 16
_HALVINGS: Final = 16

#: Approximate number of widths per group at which costs are computed before a cut.
_WIDTHS: Final = 32

Array: TypeAlias = npt.NDArray[np.float64]

#: The preparation part that holds the losses measured so far.
_LOSSES: Final = "losses"

#: Training steps before each of the two cuts of a trial; twice as many follow the second cut.
_TRIAL_STEPS: Final = 60

#: A unit that can be cut: its importance, its group, and its index in the group.
CuttableUnit: TypeAlias = tuple[float, str, int]


class MorphNetExecutor(IterativePruningExecutor):
    """Gradient-based shrinking of channel groups."""

    _params: MorphNetParams

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._weights: dict[str, float] = {}
        self._target: Allocation | None = None
        self._start: dict[str, int] = {}
        self._planner = Planner(self._state_of, self._trial_score)

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Measure what the source loses if each of its groups is cut; return a `LossTable`."""
        source, total = assignment.source, steps_of_table(self._params, assignment.source)
        if not total:
            return b""
        losses = dict(LossTable.loaded(progress.part(_LOSSES)).losses)
        missing = [name for name in source.groups if name not in losses]
        with activity("measuring"):
            measured = CutLosses(assignment).measured(missing) if missing else iter(())
            for done, (name, own) in enumerate(measured, 1 + len(losses)):
                losses[name] = own
                progress.keep(_LOSSES, LossTable(source.widths, losses).saved())
                progress.report(round(total * done / len(source.groups)), total)
        return LossTable(source.widths, {name: losses[name] for name in source.groups}).saved()

    def init(self, assignment: Assignment) -> None:
        """Start an edge, with equal weights for all axes of its budget."""
        super().init(assignment)
        state = self._state
        self._start_towards(assignment, self._planner.plan(assignment, state.structure, state.masks.widths))

    def preview(self, assignment: Assignment) -> keras.Model | None:
        """Return a network with the planned widths and without the blocks that the plan removes."""
        structure = analyse(assignment.model, assignment.source.rules)
        target = self._planner.plan(assignment, structure, structure.widths)
        if target is None:
            return None
        left = remove_named_blocks(structure, target.removed_blocks)
        keep = {name: np.arange(group.size) < target.widths[name] for name, group in left.groups.items()}
        return narrow(left, keep)

    def _start_towards(self, assignment: Assignment, target: Allocation | None) -> None:
        """Set the target of the edge, if any, and start from the current network."""
        self._weights = {axis: 1 / len(assignment.budget) for axis in assignment.budget}
        self._start = dict(self._state.masks.widths)
        self._target = target

    def _trial_score(self, target: Allocation, assignment: Assignment) -> float:
        """Return the validation score of a network after trial cuts and a short training."""
        scout = type(self)(self._params)
        scout._current = scout._state_of(assignment).at_start_of(assignment)
        scout._start_towards(assignment, target)
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
        """Set the strengths of the structure losses to the weighted marginal costs of the groups."""
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
            if done == 1:  # if the limits are still exceeded, continue by importance
                self._target = None
        elif self._cut_by_importance(limits) and exceeded(self.measure(), limits):
            over = excess(self.measure(), self._state.assignment.budget)
            raise StuckError(f"{over} with every channel group at its minimum")

    def _cut_towards(self, target: Allocation, done: float) -> None:
        """Remove the blocks that the target lacks, and cut the least important units of each group.

        Args:
            target: The network at the budget.
            done: Share of the distance to the target; widths fall geometrically with it.
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
        self._adopt(keep, moments, remove_named_blocks(state.structure, target.removed_blocks))

    def _cut_by_importance(self, limits: Costs) -> bool:
        """Cut the dead units and, above the threshold, the least important ones until the limits are met.

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
        """Return all units that can be cut, best candidates first.

        Each group keeps its most important units, at least one. Groups without costs on the relevant axes are
        not cut. The importance of a unit increases as fewer of the other units in its group remain: norms are
        hardly comparable between groups, and a group that lost more than others is a bottleneck. (Only the
        other units count: one of two attention heads is half of its group.) Importance is also multiplied by
        the square root of the number of layers that produce the unit, because a cut in a residual stream
        affects every block.

        Costs are considered within a group: units are cut in blocks of the width that saves the most per
        loss, because devices compute several channels at once. Between groups, costs act through the
        structure losses and `_GROUP_BOUND_EXPONENT`, which puts live units last if their group would
        otherwise lose too much. Also dividing by costs between groups would starve the layers near the input.
        """
        pressure = self._marginal_costs()
        narrowest = self._scale(limits) ** _GROUP_BOUND_EXPONENT
        candidates = []
        for name, values in self._state.values(moments).items():
            left = np.flatnonzero(self._state.masks.keep[name])
            group = self._state.structure.groups[name]
            # A grouped convolution with one group is an ordinary convolution, whose channels form their own
            # group.
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
        """Return each unit's sort key: dead units first, then spare ones, then by importance.

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
        """Return the savings from cutting given numbers of a group's units, on the axes with weights."""
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
        """Return the uniform scale of all of the source's groups at which it would meet the limits."""
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
        """Return the number of candidates to cut to meet the limits; costs fall with every cut."""
        return bisect_left(
            range(len(candidates)), True, key=lambda cuts: self._meets(limits, candidates[:cuts])
        )

    def _needed(self, gone: list[CuttableUnit], cut: list[CuttableUnit], limits: Costs) -> list[CuttableUnit]:
        """Return the candidates that must be cut, with as few of `cut` as the limits allow.

        Hardware computes several channels at once, so cuts between two such steps save little or nothing.
        Units are therefore restored, the most important first, until another unit of their group would exceed
        the limits; then units of other groups follow.
        """

        def fits(back: int) -> bool:
            return self._meets(limits, gone + cut[: len(cut) - back])

        while cut:
            counts = range(1, len(cut) + 1)
            back = bisect_left(counts, True, key=lambda back: not fits(back)) if fits(1) else 0
            cut = cut[: len(cut) - back]
            if cut:
                _, full, _ = cut[-1]
                gone = gone + [unit for unit in cut if unit[1] == full]
                cut = [unit for unit in cut if unit[1] != full]
        return gone

    def _meets(self, limits: Costs, cut: list[CuttableUnit]) -> bool:
        """Check whether the network meets the limits without these units."""
        widths = {name: int(mask.sum()) for name, mask in self._keep_without(cut).items()}
        network = self._state.structure.network(widths)
        return not exceeded(costs_of(network, self._state.assignment.profiles, only=limits), limits)

    def _keep_without(self, cut: list[CuttableUnit]) -> Keep:
        keep = {name: mask.copy() for name, mask in self._state.masks.keep.items()}
        for _, name, unit in cut:
            keep[name][unit] = False
        return keep

    def _pressures(self) -> dict[str, float]:
        """Return the marginal costs of the groups that are to be cut; 0 for the others."""
        widths, least = self._state.masks.widths, self._state.structure.least_widths
        target = {**least, **(self._target.widths if self._target else {})}
        return {
            name: cost if target[name] < widths[name] else 0.0
            for name, cost in self._marginal_costs().items()
        }

    def _marginal_costs(self) -> dict[str, float]:
        """Return the cost of one unit of each group, relative to the mean over groups."""
        widths = self._state.masks.widths
        now = self.measure()
        costs = {}
        for name, width in widths.items():
            costs[name] = self._saving(now, {**widths, name: width - 1})
        mean = np.mean(list(costs.values())) or 1.0
        return {name: float(value / mean) for name, value in costs.items()}


def worth_by_blocks(importance: Array, savings: Mapping[int, float]) -> Array:
    """Return the importance of units [units], averaged over the blocks that are best cut together.

    The blocks are the edges of the lower convex hull of loss over savings. If a block saves as much per unit
    as the group's mean, its units have its mean importance; if it saves twice as much, they have half of
    that.

    Args:
        importance: Importance of each unit [units], in the order in which they are cut.
        savings: Number of units cut -> costs saved; the last key is the number of all units.
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
