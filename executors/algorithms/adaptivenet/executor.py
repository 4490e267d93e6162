"""AdaptiveNet on the server: a supernet for all goals, with a subnet for each of them (AdaptiveNet 4)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import keras

from executors.algorithms.adaptivenet.parts import no_parts, supernet_parts
from executors.algorithms.adaptivenet.selection import Subnets
from executors.algorithms.adaptivenet.supernet import Supernet, replaceable
from executors.algorithms.adaptivenet.training import SupernetTraining
from executors.algorithms.baselines.uniform import UniformExecutor
from executors.contract.executor import Assignment
from executors.contract.parts import PackageParts
from executors.contract.preparation import PreparationProgress
from executors.params import AdaptiveNetParams, Params
from executors.pruning.state import PruningState
from executors.structure import Structure, analyse
from executors.timing import activity
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, exceeded

#: Settings that the supernet does not depend on.
_OF_EDGES: Final = {
    "adapt_steps", "blocks", "cuts", "max_steps", "schedule_interval", "source_steps", "tune_steps",
}  # fmt: skip


class AdaptiveNetExecutor(UniformExecutor):
    """An executor that picks a subnet of a supernet, which is trained once before the first edge.

    Where even the cheapest subnet exceeds the limits, it is cut in width. Networks above the source, and
    those that share layers with others, are cut directly.
    """

    name = "adaptivenet"
    params_class = AdaptiveNetParams
    _params: AdaptiveNetParams

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._loaded: tuple[bytes, Subnets] | None = None
        self._has_subnet = False
        self._calibrated = False

    @property
    def calibrated(self) -> bool:
        """Check whether the network is exactly a subnet, so that it computes what its blocks do."""
        return self._calibrated

    @classmethod
    def prepares(cls, params: Params, source: Structure) -> bool:
        """Return whether the source has blocks that may be replaced."""
        return bool(replaceable(source, _of_supernet(params).largest))

    @classmethod
    def prepares_from(cls, params: Params, least: Budget) -> tuple[Mapping[str, object], Budget]:
        """Return the settings of the supernet and of training: the limits do not change it."""
        return params.model_dump(mode="json", exclude=_OF_EDGES), {}

    @classmethod
    def adapting_steps(cls, params: Params, distance: float) -> int:
        """Return no steps: the supernet is trained once for all edges."""
        return 0

    @classmethod
    def preparing_steps(cls, params: Params, distance: float) -> int:
        """Return the steps of both stages of the supernet's training."""
        own = _of_supernet(params)
        return own.distil_steps + own.path_steps

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Train the supernet of the source; do nothing if none of its blocks can be replaced."""
        training = SupernetTraining.of(assignment, self._params, progress)
        return training.finished() if training else b""

    def package_parts(self, source: Structure, prepared: bytes, network: keras.Model) -> PackageParts:
        """Return the blocks of the supernet, unless the settings leave them out."""
        if not self._params.blocks:
            return PackageParts()
        if not prepared:
            return no_parts(self._params.largest)
        return supernet_parts(Supernet.loaded(prepared, source, self._params.largest), network)

    def init(self, assignment: Assignment) -> None:
        """Take a new network, or continue with the one that was delivered last."""
        super().init(assignment)
        self._has_subnet = _keeps_network(assignment)
        self._calibrated = self._calibrated and not self._is_new(assignment.model)

    def iterate(self) -> int:
        """Continue with the best subnet within the limits; if there is none, cut the cheapest one."""
        assignment = self._state.assignment
        steps = 0
        if not self._has_subnet:
            self._has_subnet = True
            steps = self._go_on_to_subnet(assignment)
            if not exceeded(self.measure(), assignment.budget):
                return steps
        self._calibrated = False
        return steps + super().iterate()

    def _go_on_to_subnet(self, assignment: Assignment) -> int:
        progress = PreparationProgress()
        content = assignment.prepared or self.prepare(assignment, progress)
        if content:
            with activity("cutting"):
                model = self._subnets(content, assignment).best(assignment)
                state = PruningState.of(model, assignment, self._structure_loss)
                self._current = replace(state.at_start_of(assignment), start=self._state.start)
            self._calibrated = True
        return progress.step

    def _subnets(self, content: bytes, assignment: Assignment) -> Subnets:
        if self._loaded is None or self._loaded[0] != content:
            self._loaded = (
                content,
                Subnets(*Supernet.loaded(content, assignment.source, self._params.largest)),
            )
        return self._loaded[1]


def _of_supernet(params: Params) -> AdaptiveNetParams:
    if not isinstance(params, AdaptiveNetParams):
        raise TypeError(f"params are {type(params).__name__}; expected {AdaptiveNetParams.__name__}")
    return params


def _keeps_network(assignment: Assignment) -> bool:
    """Check whether an edge has to continue with its own network rather than with a subnet of the source.

    Its frozen layers are shared with others; or it is larger than the source.
    """
    if analyse(assignment.model).graph.frozen - assignment.source.graph.frozen:
        return True
    source = costs_of(assignment.source.network(), assignment.profiles, only=assignment.budget)
    return not exceeded(source, assignment.budget)
