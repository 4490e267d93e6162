"""AdaptiveNet on the server: one supernet for all goals, and a subnet of it for each goal (AdaptiveNet 4)."""

from dataclasses import replace

import keras

from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.algorithms.adaptivenet.parts import parts_without_blocks, supernet_parts
from executors.algorithms.adaptivenet.selection import LoadedSupernet, Subnets
from executors.algorithms.adaptivenet.supernet import Supernet
from executors.algorithms.adaptivenet.training import SupernetTraining
from executors.algorithms.baselines.uniform import UniformExecutor
from executors.contract.assignment import Assignment
from executors.contract.package_parts import PackageParts
from executors.contract.params import Params
from executors.contract.preparation import PreparationProgress
from executors.pruning.state import PruningState
from executors.structure import Structure, analyse
from executors.timing import activity
from mistify.costs.axes import costs_of
from mistify.costs.budget import exceeded


class AdaptiveNetExecutor(UniformExecutor):
    """An executor that selects subnets of a supernet, which is trained once before the first edge.

    If even the cheapest subnet exceeds the limits, its widths are cut. Networks larger than the source, and
    networks that share layers with others, are cut directly.

    Args:
        params: Settings of the algorithm in the config.
        prepared: The preparation, shared with other executors; None for one of its own.
    """

    _params: AdaptiveNetParams
    _training: type[SupernetTraining] = SupernetTraining

    def __init__(self, params: Params, prepared: "PreparedSupernet | None" = None) -> None:
        super().__init__(params)
        self._prepared = prepared or PreparedSupernet()
        self._subnets: tuple[LoadedSupernet, Subnets] | None = None
        self._has_subnet = False
        self._calibrated = False

    @property
    def calibrated(self) -> bool:
        """Check whether the network is exactly a subnet, whose blocks are already calibrated."""
        return self._calibrated

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Train the supernet of the source; do nothing if none of its blocks can be replaced."""
        training = self._training.of(assignment, self._params, progress)
        return training.finished() if training else b""

    def for_edge(self) -> "AdaptiveNetExecutor":
        """Return an executor for one edge, with the supernet that is loaded and the subnets' losses."""
        return type(self)(self._params, self._prepared)

    def package_parts(self, source: Structure, prepared: bytes, network: keras.Model) -> PackageParts:
        """Return the blocks of the supernet, unless the settings leave them out."""
        if not self._params.blocks:
            return PackageParts()
        if not prepared:
            return parts_without_blocks(self._params.largest)
        return supernet_parts(Supernet.loaded(prepared, source, self._params.largest), network)

    def init(self, assignment: Assignment) -> None:
        """Start from a new network, or continue with the last one delivered."""
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
                model = self._subnets_of(content, assignment).best(assignment)
                state = PruningState.of(model, assignment, self._structure_loss)
                self._current = replace(state.at_start_of(assignment), start=self._state.start)
            self._calibrated = True
        return progress.step

    def _subnets_of(self, content: bytes, assignment: Assignment) -> Subnets:
        loaded = self._prepared.loaded(content, assignment.source, self._params.largest)
        if self._subnets is None or self._subnets[0] is not loaded:
            self._subnets = loaded, Subnets(loaded)
        return self._subnets[1]


class PreparedSupernet:
    """The supernet of a preparation, which is loaded once for all goals."""

    def __init__(self) -> None:
        self._latest: tuple[bytes, LoadedSupernet] | None = None

    def loaded(self, content: bytes, source: Structure, largest: float) -> LoadedSupernet:
        """Return the supernet of a preparation.

        Args:
            content: The result of the preparation.
            source: The network that the supernet was made of.
            largest: The share of parameters and multiply-adds up to which neighbouring layers form a block.
        """
        if self._latest is None or self._latest[0] != content:
            self._latest = content, LoadedSupernet(*Supernet.loaded(content, source, largest))
        return self._latest[1]


def _keeps_network(assignment: Assignment) -> bool:
    """Check whether an edge must continue with its own network instead of a subnet of the source.

    This is the case if other networks share its frozen layers, or if it is larger than the source.
    """
    if analyse(assignment.model).graph.frozen - assignment.source.graph.frozen:
        return True
    source = costs_of(assignment.source.network(), assignment.profiles, only=assignment.budget)
    return not exceeded(source, assignment.budget)
