"""A network that is being pruned, and its progress towards its goal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import log2
from typing import Final

import keras
import numpy as np

from executors.contract.assignment import Assignment
from executors.pruning.importance import importances
from executors.pruning.masked_norms import with_masked_norms
from executors.pruning.masks import Masks
from executors.pruning.reconstruction import Array, Compensation, Moments
from executors.pruning.saliency import saliencies
from executors.pruning.structure_loss import StructureLoss
from executors.structure import Keep, Structure, analyse, narrow, narrow_arrays
from executors.training.trainer import OptimizerState, Trainer
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs, tightest_ratio

layers = keras.layers

#: Limits on the learning rate, as multiples of the setting. The setting applies to a goal with half the
#: source's costs; the rate increases with the number of halvings between source and goal.
_SLOWEST: Final = 0.1
_FASTEST: Final = 2.0

#: Factor on the source's dropout rates in networks cut from it: a smaller network with a teacher overfits
#: less. (Rates that fall with the number of connections: Han et al., 2015.)
_DROPOUT: Final = 1 / 3

#: Below any mean loss; avoids division by zero if no unit of a group causes a loss.
_TINY: Final = float(np.finfo(float).tiny)

_DROPOUTS: Final = (
    layers.Dropout,
    layers.GaussianDropout,
    layers.SpatialDropout1D,
    layers.SpatialDropout2D,
)

#: A function that makes the structure losses for training a network of a structure; it may return None.
LossFactory = Callable[[Structure], StructureLoss | None]


@dataclass(frozen=True)
class PruningState:
    """A network on one edge of a goal tree: its remaining units, and its trainer.

    Attributes:
        structure: The structure at the network's physical widths.
        masks: The units that are left.
        compensation: Adjusts the remaining units to compensate for the cut ones.
        loss: The structure losses of the training; None without any.
        start: Costs at the start of the edge.
        cuts: Number of cuts on the edge so far.
        work_on_masked: Multiply-adds spent on training masked units since the network was built.
    """

    assignment: Assignment
    structure: Structure
    masks: Masks
    compensation: Compensation
    loss: StructureLoss | None
    trainer: Trainer
    start: Costs = field(default_factory=dict)
    cuts: int = 0
    work_on_masked: float = 0.0

    @classmethod
    def of(
        cls,
        model: keras.Model,
        assignment: Assignment,
        loss: LossFactory,
        *,
        cuts: int = 0,
        optimizer_state: OptimizerState | None = None,
    ) -> "PruningState":
        """Return the state of a network without masked units.

        Args:
            model: A network, which may be changed in place from now on.
            loss: Makes the structure losses.
            cuts: Number of cuts on the edge so far.
            optimizer_state: The state of an earlier trainer for these weights.
        """
        model = with_masked_norms(model)
        structure = analyse(model, assignment.source.rules)
        _reduce_dropout(structure, assignment.source)
        masks, compensation = Masks(structure), Compensation(structure)
        structure_loss = loss(structure)
        seed = assignment.seed + cuts
        trainer = Trainer(
            model, assignment.setup, seed, structure_loss, masks.apply, optimizer_state=optimizer_state
        )
        return cls(assignment, structure, masks, compensation, structure_loss, trainer, cuts=cuts)

    @property
    def costs(self) -> Costs:
        """The costs at the masked widths."""
        return costs_of(self.structure.network(self.masks.widths), self.assignment.profiles)

    @property
    def masked_flops(self) -> float:
        """The multiply-adds of an inference that masked units waste."""
        return self.structure.network().flops - self.structure.network(self.masks.widths).flops

    def at_start_of(self, assignment: Assignment) -> "PruningState":
        """Return the state at the start of an edge, with the learning rate for its goal."""
        state = replace(self, assignment=assignment, cuts=0)
        state.trainer.learning_rate = _learning_rate_factor(assignment) * state.trainer.usual_rate
        return replace(state, start=state.costs)

    def rebuilt(self, structure: Structure, loss: LossFactory) -> "PruningState":
        """Return the state with a network that is physically as narrow as its masks.

        Args:
            structure: The current structure, or one without some blocks or at another resolution.
            loss: Makes the structure losses.
        """
        keep = {name: self.masks.keep[name] for name in structure.groups}
        optimizer_state = self.trainer.optimizer_state()
        arrays = {
            kind: narrow_arrays(structure, keep, moment) for kind, moment in optimizer_state.arrays.items()
        }
        state = PruningState.of(
            narrow(structure, keep),
            self.assignment,
            loss,
            cuts=self.cuts,
            optimizer_state=replace(optimizer_state, arrays=arrays),
        )
        state.trainer.learning_rate = _learning_rate_factor(self.assignment) * state.trainer.usual_rate
        return replace(state, start=self.start)

    def limits(self, done: float) -> Costs:
        """Return the costs that a cut has to reach, on a geometric path from the start to the budget.

        Args:
            done: Share of the distance covered after the cut.
        """
        return {
            axis: self.start[axis] * (limit / self.start[axis]) ** done if limit < self.start[axis] else limit
            for axis, limit in self.assignment.budget.items()
        }

    def values(self, moments: Mapping[int, Moments]) -> dict[str, Array]:
        """Return the worth of each unit [units], relative to the mean of its group's remaining units.

        The worth is the loss without the unit after the others have compensated, or the norm of its weights
        if no other unit can compensate.

        Args:
            moments: The moments of the tensors that the groups' consumers read.
        """
        return unit_values(self.structure, self.compensation, self.masks.keep, moments)


def unit_values(
    structure: Structure, compensation: Compensation, keep: Keep, moments: Mapping[int, Moments]
) -> dict[str, Array]:
    """Return the worth of each unit of a network [units]; see `PruningState.values`.

    Args:
        compensation: Knows the kernels that read each group.
        keep: The units left in each group.
        moments: The moments of the tensors that the groups' consumers read.
    """
    losses = saliencies(compensation.consumers, keep, moments)
    return {
        name: losses[name] / max(losses[name][keep[name]].mean(), _TINY) if name in losses else norms
        for name, norms in importances(structure, keep).items()
    }


def _reduce_dropout(structure: Structure, source: Structure) -> None:
    for name, layer in structure.graph.layers.items():
        if isinstance(layer, _DROPOUTS) and name in source.graph.layers:
            layer.rate = _DROPOUT * source.graph.layers[name].rate


def _learning_rate_factor(assignment: Assignment) -> float:
    """Return the factor on the learning rate: the smaller the goal, the more has to be relearned."""
    source = costs_of(assignment.source.network(), assignment.profiles)
    left = tightest_ratio(source, assignment.budget)
    return min(max(_SLOWEST, -log2(left)), _FASTEST)
