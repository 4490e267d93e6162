"""Bases of algorithms that mask units before cutting them, and of those that take several cuts."""

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
from mistify.costs.budget import Costs, share_left

__all__ = ["IterativePruningExecutor"]

#: Rebuilding a network and tracing it takes the time of so many multiply-adds of training for each of its
#: layers: 2.7 s for a ResNet-8, at 50 thousand million a second.
_BUILDING: Final = 4e9

#: A training step computes a network once forwards, and about twice backwards.
_PASSES: Final = 3


class PruningExecutor(AdaptationExecutor):
    """An executor that masks the units which it cuts, and continues from one edge of a path to the next."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._current: PruningState | None = None
        self._delivered: keras.Model | None = None

    @property
    def trainer(self) -> Trainer:
        """The trainer of the present network."""
        return self._state.trainer

    def init(self, assignment: Assignment) -> None:
        """Take a new network, or continue with the one that was delivered last."""
        new = self._is_new(assignment.model)
        state = self._state_of(assignment) if new else self._state
        self._current = state.at_start_of(assignment)

    def measure(self) -> Costs:
        """Return the costs at the masked widths."""
        return self._state.costs

    def network(self) -> keras.Model:
        """Return the network without its masked units, and remember it as the one to continue with."""
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
        """Check whether a network differs from the one that was delivered last."""
        return self._delivered is None or model is not self._delivered

    def _structure_loss(self, structure: Structure) -> StructureLoss | None:
        """Return the structure losses that a network of this structure is trained with, if any."""
        return None


class IterativePruningExecutor(PruningExecutor):
    """An executor whose iterations each train, then cut towards the next share of the way.

    The remaining units take over from those that are cut as well as they can without training.
    """

    _params: IterativePruningParams

    def iterate(self) -> int:
        """Train for an even part of the edge's steps, then cut towards the next share of the way."""
        steps = self._params.steps_of_cut
        self.trainer.train(constant(steps))
        self._current = replace(self._state, cuts=self._state.cuts + 1)
        distance = 1 / share_left(self._state.start, self._state.assignment.budget)
        done = min(1.0, self._state.cuts / self._params.planned_cuts(distance))
        with activity("cutting"):
            try:
                self._cut(done)
            except StuckError:
                if not self._state.masked_flops:
                    raise
                # Rebuilt, it may have other groups: a grouped convolution of one group is an ordinary one.
                self._rebuild(self._state.structure)
                self._cut(done)
        return steps

    @abstractmethod
    def _cut(self, done: float) -> None:
        """Choose the units to cut next, and adopt the network without them.

        Args:
            done: Share of the way to the budget that lies behind the cut.

        Raises:
            StuckError: The limits do not hold though nothing is left to cut.
        """

    def _adopt(self, keep: Keep, moments: Mapping[int, Moments], structure: Structure | None = None) -> None:
        """Go on with these units of every group, which take over from the others.

        Where cuts are not trained, all layers are fitted again.

        Args:
            moments: The moments that the remaining units are fitted by.
            structure: The structure without some blocks, or at another resolution, that replaces the present
                one.
        """
        state = self._state
        target = structure or state.structure
        # What was computed at other positions tells nothing of these.
        fitted = not self._params.steps_of_cut and resolution(target.graph) == resolution(
            state.structure.graph
        )
        original = Original.of(state.structure) if fitted else None
        if original is None:
            state.compensation.apply(state.masks.keep, keep, moments)
        state.masks.set(keep)
        self._current = state = replace(state, work_on_masked=state.work_on_masked + self._work_ahead())
        if (
            target is not state.structure
            or state.work_on_masked > _BUILDING * len(state.structure.graph.layers)
            or state.structure.averages_channels
        ):
            self._rebuild(target)
        if original is not None:
            refit(original, keep, self._state.structure.graph, state.assignment.setup.train)
        self._state.trainer.start_average()

    def _work_ahead(self) -> float:
        """Return the multiply-adds of training until the next cut that would be spent on masked units."""
        state, params = self._state, self._params
        distance = 1 / share_left(state.start, state.assignment.budget)
        is_last = state.cuts >= params.planned_cuts(distance)
        steps = params.tune_steps if is_last else params.steps_of_cut
        return _PASSES * params.batch_size * steps * state.masked_flops

    def _rebuild(self, structure: Structure) -> None:
        """Go on with a network that is physically as narrow as its masks were.

        Args:
            structure: The present structure, or one without some blocks or at another resolution.
        """
        self._current = self._state.rebuilt(structure, self._structure_loss)
