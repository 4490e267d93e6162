"""What algorithms share that come to a goal by several cuts, with training in between."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from math import ceil, log, log2

import keras
import numpy as np
import tensorflow as tf
from pydantic import Field

from executors.base import AdaptationExecutor, Assignment, Params
from executors.pruning.importance import importances
from executors.pruning.masks import Masks
from executors.pruning.reconstruction import Array, Compensation, Moments
from executors.pruning.saliency import damages
from executors.structure import Keep, Structure, analyse, copied, narrow, narrow_arrays
from executors.timing import activity
from executors.training.trainer import Memory, Trainer, constant
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs, share_left

layers = keras.layers

#: A cut takes at least this share of the costs; a network is hardly hurt by less.
LEAST_CUT = 0.2

#: The learning rate is the one that is set where a goal is half of the source; it rises with the number of
#: halvings in between. These multiples of it are the least and the most.
_SLOWEST = 0.1
_FASTEST = 2.0

#: The physical network is rebuilt when the masked one has less than this share of its multiply-adds.
_REBUILD_BELOW = 0.6


#: Part of the source's dropout that is left in what is cut from it: a smaller network with a teacher learns
#: less by heart. (Rates that fall with the connections: Han et al., 2015.)
_DROPOUT = 1 / 3

#: Below any mean loss: where nothing is lost with a group's units, each of them is worth nothing.
_TINY = float(np.finfo(float).tiny)

_DROPOUTS = (layers.Dropout, layers.GaussianDropout, layers.SpatialDropout1D, layers.SpatialDropout2D)


class IterativePruningParams(Params):
    """Settings of an algorithm that cuts several times.

    Attributes:
        cuts: The most iterations, with a cut each, over which an edge is spread. A short edge takes fewer,
            and so fewer of the `adapt_steps`.
    """

    cuts: int = Field(default=8, ge=1)

    @property
    def steps_of_cut(self) -> int:
        """Training steps before each cut."""
        return max(1, self.adapt_steps // self.cuts)

    def planned_cuts(self, distance: float) -> int:
        """Cuts of an edge along which costs fall by a factor: as few as take the least share each."""
        return min(self.cuts, max(1, ceil(log(distance) / -log(1 - LEAST_CUT))))


class IterativePruningExecutor(AdaptationExecutor):
    """Each iteration trains, then cuts towards the next share of the way.

    What stays takes over from what is cut as well as it can without training.
    """

    _params: IterativePruningParams

    def __init__(self, params: Params) -> None:
        if not isinstance(params, IterativePruningParams) or not isinstance(params, self.params_class):
            raise TypeError(f"params are {type(params).__name__}; expected {self.params_class.__name__}")
        self._params = params
        self._delivered: keras.Model | None = None

    def init(self, assignment: Assignment) -> None:
        """Find how large the steps towards the goal are."""
        self._assignment = assignment
        self._cuts = 0
        if self._is_new(assignment.model):
            self._take(copied(assignment.model), None)
        self._start = self.measure()
        self._set_pace()
        self._planned_cuts = self._params.planned_cuts(1 / share_left(self._start, assignment.budget))

    @classmethod
    def adapting_steps(cls, params: Params, distance: float) -> int:
        """Those before the cuts that are planned."""
        if not isinstance(params, IterativePruningParams):
            raise TypeError(f"params are {type(params).__name__}; expected {cls.params_class.__name__}")
        return params.planned_cuts(distance) * params.steps_of_cut

    def iterate(self) -> int:
        """Train for an even part of the edge's steps, then cut towards the next share of the way."""
        steps = self._params.steps_of_cut
        self.trainer.train(constant(steps))
        self._cuts += 1
        with activity("cutting"):
            self._cut(self._limits())
        return steps

    def measure(self) -> Costs:
        """Costs at the masked widths."""
        return costs_of(self._structure.network(self._masks.widths), self._assignment.profiles)

    def network(self) -> keras.Model:
        """The network without its masked units."""
        self._delivered = narrow(self._structure, self._masks.keep)
        return self._delivered

    @abstractmethod
    def _cut(self, limits: Costs) -> None:
        """Choose what is cut next, and adopt what is left.

        Raises:
            StuckError: The limits do not hold though nothing is left to cut.
        """

    def _is_new(self, model: keras.Model) -> bool:
        """Whether it is not the network that this executor stands at."""
        return self._delivered is None or model is not self._delivered

    def _penalty(self, structure: Structure) -> Callable[[], tf.Tensor] | None:
        """What training adds to the loss of a network of this structure."""
        return None

    def _values(self, moments: Mapping[int, Moments]) -> dict[str, Array]:
        """What each unit is worth [units], over the mean of those that are left of its group.

        What is lost without it once the others have taken over; norms of weights where nothing can.
        """
        keep = self._masks.keep
        losses = damages(self._compensation.consumers, keep, moments)
        return {
            name: losses[name] / max(losses[name][keep[name]].mean(), _TINY) if name in losses else norms
            for name, norms in importances(self._structure, keep).items()
        }

    def _adopt(self, keep: Keep, moments: Mapping[int, Moments], structure: Structure | None = None) -> None:
        """Go on with these units of every group, which take over from the others.

        Args:
            keep: The units.
            moments: What taking over needs to know.
            structure: The network's without some blocks, or at another resolution, to go on with.
        """
        self._compensation.apply(self._masks.keep, keep, moments)
        self._masks.set(keep)
        self.trainer.start_average()
        left = self._structure.network(self._masks.widths).flops
        if structure is not None and structure is not self._structure:
            self._rebuild(structure)
        elif left < _REBUILD_BELOW * self._physical or self._structure.averages_channels:
            self._rebuild(self._structure)

    def _take(self, model: keras.Model, memory: Memory | None) -> None:
        """Work on a network that has no masked units."""
        self._structure = analyse(model)
        self._set_dropout()
        self._masks = Masks(self._structure)
        self._compensation = Compensation(self._structure)
        self._physical = self._structure.network().flops
        self.trainer = Trainer(
            model,
            self._assignment.setup,
            self._assignment.seed + self._cuts,
            self._penalty(self._structure),
            self._masks.apply,
            memory=memory,
        )

    def _rebuild(self, structure: Structure) -> None:
        """Go on with a network that is physically as narrow as its masks were.

        Args:
            structure: The network's, or that without some blocks or at another resolution.
        """
        keep = {name: self._masks.keep[name] for name in structure.groups}
        memory = self.trainer.memory()
        arrays = {kind: narrow_arrays(structure, keep, found) for kind, found in memory.arrays.items()}
        self._take(narrow(structure, keep), Memory(memory.steps, arrays))
        self._set_pace()

    def _set_dropout(self) -> None:
        source = self._assignment.source.graph.layers
        for name, layer in self._structure.graph.layers.items():
            if isinstance(layer, _DROPOUTS) and name in source:
                layer.rate = _DROPOUT * source[name].rate

    def _set_pace(self) -> None:
        """Learn the faster, the less will be left of the source: there is less to keep than to relearn."""
        source = costs_of(self._assignment.source.network(), self._assignment.profiles)
        narrowest = self._assignment.narrowest
        limits = {
            axis: min(limit, narrowest.get(axis, limit)) for axis, limit in self._assignment.budget.items()
        }
        halvings = -log2(share_left(source, limits))
        pace = min(max(_SLOWEST, halvings), _FASTEST)
        self.trainer.learning_rate = pace * self._assignment.setup.params.learning_rate

    def _limits(self) -> Costs:
        """The costs that the next cut has to reach: on a geometric path from the start to the budget."""
        done = min(1.0, self._cuts / self._planned_cuts)
        return {
            axis: self._start[axis] * (limit / self._start[axis]) ** done
            if limit < self._start[axis]
            else limit
            for axis, limit in self._assignment.budget.items()
        }
