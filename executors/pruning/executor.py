"""Base classes of algorithms that mask units before cutting them, and of those that cut several times."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import keras

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor, StuckError
from executors.contract.params import Params
from executors.pruning.params import IterativePruningParams
from executors.pruning.reconstruction import Moments
from executors.pruning.refitting import Original, refit
from executors.pruning.state import PruningState
from executors.pruning.structure_loss import StructureLoss
from executors.structure import Keep, Structure, copied, narrow, resolution
from executors.timing import activity
from executors.training.trainer import Trainer, constant
from mistify.costs.budget import Costs, tightest_ratio

__all__ = ["IterativePruningExecutor"]

#: Multiply-adds of training that take as long as rebuilding and tracing a network, per layer: 2.7 s for a
#: ResNet-8, at 50 billion per second.
_BUILDING: Final = 4e9

#: Cost of a training step in inferences: one for the forward pass, about two for the backward pass.
_PASSES: Final = 3


class PruningExecutor(AdaptationExecutor):
    """An executor that masks the units that it cuts, and continues from one edge of a path to the next."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._current: PruningState | None = None
        self._delivered: keras.Model | None = None

    @property
    def trainer(self) -> Trainer:
        """The trainer of the current network."""
        return self._state.trainer

    def init(self, assignment: Assignment) -> None:
        """Start from a new network, or continue with the last one delivered."""
        new = self._is_new(assignment.model)
        state = self._state_of(assignment) if new else self._state
        self._current = state.at_start_of(assignment)

    def measure(self) -> Costs:
        """Return the costs at the masked widths."""
        return self._state.costs

    def network(self) -> keras.Model:
        """Return the network without its masked units, and remember it for the next edge."""
        self._delivered = narrow(self._state.structure, self._state.masks.keep)
        return self._delivered

    @property
    def _state(self) -> PruningState:
        if self._current is None:
            raise RuntimeError("the executor has no network yet; call init first")
        return self._current

    def _state_of(self, assignment: Assignment) -> PruningState:
        """Return the state of a copy of an edge's network."""
        return PruningState.of(copied(assignment.model), assignment, self._structure_loss)

    def _is_new(self, model: keras.Model) -> bool:
        """Check whether a network differs from the last one delivered."""
        return self._delivered is None or model is not self._delivered

    def _structure_loss(self, structure: Structure) -> StructureLoss | None:
        """Return the structure losses for training a network of this structure, if any."""
        return None


class IterativePruningExecutor(PruningExecutor):
    """An executor whose iterations train, and then cut towards the next share of the distance to the goal.

    The remaining units compensate for the cut ones as far as possible without training.
    """

    _params: IterativePruningParams

    def iterate(self) -> int:
        """Train for an equal part of the edge's steps, then cut towards the next share of the distance."""
        steps = self._params.steps_of_cut
        self.trainer.train(constant(steps))
        self._current = replace(self._state, cuts=self._state.cuts + 1)
        distance = 1 / tightest_ratio(self._state.start, self._state.assignment.budget)
        done = min(1.0, self._state.cuts / self._params.planned_cuts(distance))
        with activity("cutting"):
            try:
                self._cut(done)
            except StuckError:
                if not self._state.masked_flops:
                    raise
                # Rebuilding may change the groups: a grouped convolution with one group becomes an ordinary
                # one.
                self._rebuild(self._state.structure)
                self._cut(done)
        return steps

    @abstractmethod
    def _cut(self, done: float) -> None:
        """Choose the units to cut next, and adopt the network without them.

        Args:
            done: Share of the distance to the budget covered after the cut.

        Raises:
            StuckError: The limits are exceeded, and nothing is left to cut.
        """

    def _adopt(self, keep: Keep, moments: Mapping[int, Moments], structure: Structure | None = None) -> None:
        """Continue with these units of every group, which compensate for the others.

        If cuts are not followed by training, all layers are refitted.

        Args:
            moments: The moments used to fit the remaining units.
            structure: The structure without some blocks, or at another resolution, that replaces the current
                one.
        """
        state = self._state
        target = structure or state.structure
        # Outputs at another resolution are at other positions, to which layers cannot be fitted.
        fitted = not self._params.steps_of_cut and resolution(target.graph) == resolution(
            state.structure.graph
        )
        original = Original.of(state.structure) if fitted else None
        if original is None:
            state.compensation.apply(state.masks.keep, keep, moments)
        state.masks.set(keep)
        self._current = state = replace(state, work_on_masked=state.work_on_masked + self._work_ahead())
        wasted = state.work_on_masked > _BUILDING * len(state.structure.graph.layers)
        if wasted or target is not state.structure:
            self._rebuild(target)
        if original is not None:
            refit(original, keep, self._state.structure.graph, state.assignment.setup.train)
        self._state.trainer.start_average()

    def _work_ahead(self) -> float:
        """Return the multiply-adds of training until the next cut that masked units would waste."""
        state, params = self._state, self._params
        distance = 1 / tightest_ratio(state.start, state.assignment.budget)
        is_last = state.cuts >= params.planned_cuts(distance)
        steps = params.tune_steps if is_last else params.steps_of_cut
        return _PASSES * params.batch_size * steps * state.masked_flops

    def _rebuild(self, structure: Structure) -> None:
        """Continue with a network that is physically as narrow as its masks.

        Args:
            structure: The current structure, or one without some blocks or at another resolution.
        """
        self._current = self._state.rebuilt(structure, self._structure_loss)
