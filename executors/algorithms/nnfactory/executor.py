"""NN-Factory on the server: a supernet for all tasks, with a slice for each goal (NN-Factory 3)."""

from dataclasses import replace

import keras
import numpy as np

from executors.algorithms.baselines.uniform import UniformExecutor
from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.algorithms.nnfactory.parts import WITHOUT_FACTORY, factory_parts
from executors.algorithms.nnfactory.search import best_candidate, candidates
from executors.algorithms.nnfactory.supernet import Supernet
from executors.algorithms.nnfactory.training import FactoryTraining
from executors.contract.assignment import Assignment
from executors.contract.executor import StuckError
from executors.contract.package_parts import PackageParts
from executors.contract.params import Params
from executors.contract.preparation import PreparationProgress
from executors.pruning.state import PruningState
from executors.structure import Structure
from executors.structure.edits.outputs import narrow_outputs
from executors.structure.signature import output_names
from executors.timing import activity
from mistify.costs.budget import exceeded


class NNFactoryExecutor(UniformExecutor):
    """An executor that cuts a slice out of a supernet, which is trained once before the first edge.

    A goal's network is the slice of its task; it takes no training step. Without a task, or where a source
    has too few units for gates, networks are cut in width.
    """

    _params: NNFactoryParams

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._loaded: tuple[bytes, Supernet] | None = None
        self._is_slice = False

    @property
    def calibrated(self) -> bool:
        """Return whether the network is a slice, whose batch-norm statistics must not be recalibrated."""
        return self._is_slice

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Train the supernet of the source; do nothing if it has too few units for gates."""
        return FactoryTraining(assignment, self._params, progress).finished()

    def init(self, assignment: Assignment) -> None:
        """Take the best slice for the assignment's task and budget.

        Without a task, take a new network, or continue with the one that was delivered last.
        """
        slice_of_it = self.preview(assignment)
        self._is_slice = slice_of_it is not None
        if slice_of_it is None:
            super().init(assignment)
            return
        state = PruningState.of(slice_of_it, assignment, self._structure_loss)
        self._current = state.at_start_of(assignment)

    def preview(self, assignment: Assignment) -> keras.Model | None:
        """Return the slice that `init` uses; None if it uses none."""
        if assignment.task is None or not assignment.prepared:
            return None
        with activity("cutting"):
            supernet = self._supernet(assignment.prepared, assignment.source)
            task = supernet.encoded(assignment.task)
            chosen = best_candidate(candidates(supernet, task, assignment.profiles), assignment.budget)
            network = supernet.slice(chosen.assembly)
            if not assignment.task.classes:
                return network
            (output,) = output_names(network)
            return narrow_outputs(network, output, np.flatnonzero(task).tolist())

    def reference(self, assignment: Assignment) -> keras.Model | None:
        """Return the slice with the best expected quality, regardless of its costs; None if there is none."""
        return self.preview(replace(assignment, budget={}))

    def iterate(self) -> int:
        """Cut a network without a task; a slice that exceeds its limits is the smallest one."""
        if not self._is_slice:
            return super().iterate()
        assignment = self._state.assignment
        over = ", ".join(exceeded(self.measure(), assignment.budget))
        raise StuckError(f"{over} over the limit with the smallest slice for {assignment.task}")

    def package_parts(self, source: Structure, prepared: bytes, network: keras.Model) -> PackageParts:
        """Return the supernet with its assembler, if packages include it."""
        if not self._params.inside:
            return PackageParts()
        return factory_parts(self._supernet(prepared, source)) if prepared else WITHOUT_FACTORY

    def _supernet(self, prepared: bytes, source: Structure) -> Supernet:
        """Return the prepared supernet, loaded once."""
        if self._loaded is None or self._loaded[0] != prepared:
            self._loaded = prepared, Supernet.loaded(prepared, source)
        return self._loaded[1]
