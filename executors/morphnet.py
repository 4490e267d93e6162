"""MorphNet: sparsify under structure losses, cut what falls below a threshold (paper 4.2, [31]).

Each iteration trains with the structure losses, then cuts the units whose importance is below the
threshold; the units that stay take over from them as well as they can without training. `adjust` turns
the knobs: the strength of each structure loss, and the threshold, which is raised as far as the next small
step towards the goal asks.
"""

from bisect import bisect_left
from collections.abc import Mapping
from math import ceil, log, log2, sqrt

import keras
import numpy as np
from pydantic import Field

from executors.base import AdaptationExecutor, Assignment, Params, StuckError
from executors.compensation import Compensation, Moments
from executors.elimination import damages
from executors.sparsity import Masks, StructureLoss, importances
from executors.structure import Keep, analyse, narrow, narrow_arrays
from executors.timesheet import activity
from executors.training import Memory, Trainer, constant
from mistify.budget import FLOPS, Costs, exceeded


class MorphNetParams(Params):
    """MorphNet's settings.

    Attributes:
        threshold: Importance below which a unit is cut, as a share of the mean in its channel group at the
            group's width in the source; it counts for the root of the layers that make the group.
        init_reg_strength: Loss per multiply-add of an unpruned network at the start of an edge; the other
            costs are weighed so that each counts as much as the multiply-adds.
        cuts: The most iterations, with a cut each, over which an edge is spread. A short edge takes fewer,
            and so fewer of the `adapt_steps`.
    """

    threshold: float = Field(default=0.1, ge=0, lt=1)
    init_reg_strength: float = Field(default=1e-9, ge=0)
    cuts: int = Field(default=8, ge=1)


#: A cut takes at least this share of the costs; a network is hardly hurt by less.
LEAST_CUT = 0.2

#: The learning rate is the one that is set where a goal is half of the source; it rises with the number of
#: halvings in between. These multiples of it are the least and the most.
_SLOWEST = 0.1
_FASTEST = 2.0

#: The physical network is rebuilt when the masked one has less than this share of its multiply-adds.
_REBUILD_BELOW = 0.6


class MorphNetExecutor(AdaptationExecutor):
    """Gradient-based shrinking of channel groups."""

    name = "morphnet"
    params_class = MorphNetParams

    def __init__(self, params: Params) -> None:
        if not isinstance(params, MorphNetParams):
            raise TypeError(f"params are {type(params).__name__}; expected MorphNetParams")
        self._params = params
        self._delivered: keras.Model | None = None

    def init(self, assignment: Assignment) -> None:
        """Find where structure losses go, and how large the steps towards the goal are."""
        self._assignment = assignment
        self._cuts = 0
        if self._delivered is None or assignment.model is not self._delivered:
            copy = keras.models.clone_model(assignment.model)
            copy.set_weights(assignment.model.get_weights())
            self._take(copy, None)
        self._start = self.measure()
        self._set_pace()
        self._planned_cuts = min(self._params.cuts, self._least_cuts())
        self._weights = {axis: 1 / len(assignment.budget) for axis in assignment.budget}

    def adjust(self, weights: Mapping[str, float]) -> None:
        """Set the strengths of the structure losses to the weighted marginal cost of each group."""
        self._weights = dict(weights)
        strength = self._params.init_reg_strength * self._start[FLOPS]
        self._loss.set_strengths(
            {name: strength * pressure for name, pressure in self._marginal_costs().items()}
        )

    def iterate(self) -> int:
        """Train for an even part of the edge's steps, then cut towards the next share of the way."""
        steps = max(1, self._params.adapt_steps // self._params.cuts)
        self.trainer.train(constant(steps))
        self._cuts += 1
        with activity("cutting"):
            self._cut(self._limits())
        return steps

    def measure(self) -> Costs:
        """Costs at the masked widths."""
        return self._structure.network(self._masks.widths).costs(self._assignment.profiles)

    def network(self) -> keras.Model:
        """The network without its masked units."""
        self._delivered = narrow(self._structure, self._masks.keep)
        return self._delivered

    def _take(self, model: keras.Model, memory: Memory | None) -> None:
        """Work on a network that has no masked units."""
        self._structure = analyse(model)
        self._loss = StructureLoss(self._structure)
        self._masks = Masks(self._structure)
        self._compensation = Compensation(self._structure)
        self._physical = self._structure.network().flops
        seed = self._assignment.seed + self._cuts
        self.trainer = Trainer(
            model, self._assignment.schooling, seed, self._loss, self._masks.apply, memory=memory
        )

    def _rebuild(self) -> None:
        """Go on with a network that is physically as narrow as its masks were."""
        keep, memory = self._masks.keep, self.trainer.memory()
        arrays = {kind: narrow_arrays(self._structure, keep, found) for kind, found in memory.arrays.items()}
        self._take(narrow(self._structure, keep), Memory(memory.steps, arrays))
        self.adjust(self._weights)
        self._set_pace()

    def _set_pace(self) -> None:
        """Learn the faster, the less will be left of the source: there is less to keep than to relearn."""
        source = self._structure.network(self._assignment.source_widths).costs(self._assignment.profiles)
        narrowest = self._assignment.narrowest
        halvings = max(
            log2(source[axis] / min(limit, narrowest.get(axis, limit)))
            for axis, limit in self._assignment.budget.items()
        )
        pace = min(max(_SLOWEST, halvings), _FASTEST)
        self.trainer.learning_rate = pace * self._assignment.schooling.learning_rate

    def _least_cuts(self) -> int:
        """Cuts on the way to the budget if each takes the least share of the costs."""
        way = max(log(self._start[axis] / limit) for axis, limit in self._assignment.budget.items())
        return max(1, ceil(way / -log(1 - LEAST_CUT)))

    def _limits(self) -> Costs:
        """The costs that the next cut has to reach: on a geometric path from the start to the budget."""
        done = min(1.0, self._cuts / self._planned_cuts)
        return {
            axis: self._start[axis] * (limit / self._start[axis]) ** done
            if limit < self._start[axis]
            else limit
            for axis, limit in self._assignment.budget.items()
        }

    def _cut(self, limits: Costs) -> None:
        """Cut the dead units and, above the threshold, the least important ones until the limits hold.

        Raises:
            StuckError: The limits do not hold though nothing is left to cut.
        """
        moments = self._compensation.moments(self._assignment.schooling.train)
        candidates = self._candidates(moments)
        wanted = self._cuts_until(limits, candidates)
        dead = sum(importance < self._params.threshold for importance, _, _ in candidates)
        spared = self._cuts_until(self._assignment.budget, candidates)
        keep = self._keep_without(candidates[: max(wanted, min(dead, spared))])
        self._compensation.apply(self._masks.keep, keep, moments)
        self._masks.set(keep)
        self.trainer.start_average()
        if wanted == len(candidates) and exceeded(self.measure(), limits):
            over = ", ".join(exceeded(self.measure(), self._assignment.budget))
            raise StuckError(f"{over} over the limit with every channel group at its last unit")
        left = self._structure.network(self._masks.widths).flops
        if left < _REBUILD_BELOW * self._physical or self._structure.averages_channels:
            self._rebuild()

    def _candidates(self, moments: Mapping[int, Moments]) -> list[tuple[float, str, int]]:
        """Importance, group and index of every unit that can be cut, the least important first.

        The most important unit of a group stays, and so do groups that cost nothing on the axes that matter.
        A unit counts the more, the less of its group is left: norms say little about units of different
        groups, and a group that lost more than the others is a bottleneck. It counts for the root of the
        layers that make it: what is cut from a residual stream is cut from every block. Costs do not count
        here: they act through the structure losses. Dividing by them as well starves the layers near the
        input.
        """
        pressure = self._marginal_costs()
        found = []
        keep = self._masks.keep
        losses = damages(self._compensation.readers, keep, moments)
        for name, norms in importances(self._structure, keep).items():
            left = np.flatnonzero(keep[name])
            values = losses[name] / losses[name][left].mean() if name in losses else norms
            shrunk = self._assignment.source_widths[name] / len(left)
            importance = values * shrunk * sqrt(self._structure.groups[name].makers)
            cuttable = left[np.argsort(importance[left], kind="stable")][:-1]
            if pressure[name] > 0:
                found += [(float(importance[unit]), name, int(unit)) for unit in cuttable]
        return sorted(found)

    def _cuts_until(self, limits: Costs, candidates: list[tuple[float, str, int]]) -> int:
        """How many of the candidates have to go for the limits to hold; costs fall with every cut."""

        def over(cuts: int) -> bool:
            keep = self._keep_without(candidates[:cuts])
            widths = {name: int(mask.sum()) for name, mask in keep.items()}
            return bool(exceeded(self._structure.network(widths).costs(self._assignment.profiles), limits))

        return bisect_left(range(len(candidates)), True, key=lambda cuts: not over(cuts))

    def _keep_without(self, cut: list[tuple[float, str, int]]) -> Keep:
        keep = {name: mask.copy() for name, mask in self._masks.keep.items()}
        for _, name, unit in cut:
            keep[name][unit] = False
        return keep

    def _marginal_costs(self) -> dict[str, float]:
        """What a unit of each group costs on the axes that matter now, against the mean over the groups."""
        widths = self._masks.widths
        now = self.measure()
        found = {}
        for name, width in widths.items():
            less = self._structure.network({**widths, name: width - 1}).costs(self._assignment.profiles)
            found[name] = sum(
                weight * (now[axis] - less[axis]) / now[axis] for axis, weight in self._weights.items()
            )
        mean = np.mean(list(found.values())) or 1.0
        return {name: float(value / mean) for name, value in found.items()}
