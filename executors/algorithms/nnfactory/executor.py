"""NN-Factory on the server: a supernet for all tasks, with a slice for each goal (NN-Factory 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import keras

from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.algorithms.nnfactory.parts import factory_parts, whole_network
from executors.algorithms.nnfactory.search import best_slice, slices_of
from executors.algorithms.nnfactory.serving import served_tasks
from executors.algorithms.nnfactory.supernet import Supernet
from executors.algorithms.nnfactory.training import FactoryTraining
from executors.contract.assignment import Assignment
from executors.contract.executor import StuckError
from executors.contract.package_parts import PackageParts
from executors.contract.params import Params
from executors.contract.preparation import PreparationProgress
from executors.contract.slices import Slice, WholeNetwork
from executors.pruning.executor import PruningExecutor
from executors.pruning.state import PruningState
from executors.structure import Structure
from executors.timing import activity
from mistify.jobs.formatting import excess
from mistify.scenarios.served import ServedTasks


class NNFactoryExecutor(PruningExecutor):
    """An executor that cuts a slice out of a supernet, which is trained once before the first edge.

    A goal's network is the slice of its task; it takes no training step.
    """

    _params: NNFactoryParams

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._loaded: tuple[bytes, Supernet] | None = None

    @property
    def calibrated(self) -> bool:
        """Return True: other batch-norm statistics than the supernet's harm its slices."""
        return True

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Train the supernet of the source; do nothing if it has too few units for gates."""
        return FactoryTraining(assignment, self._params, progress).finished()

    def init(self, assignment: Assignment) -> None:
        """Take the best slice for the assignment's task and budget.

        Raises:
            MistifyError: INVALID_CONFIG, the supernet knows no such property.
            ValueError: There is no task, no supernet was prepared, or the supernet knows no such class.
        """
        state = PruningState.of(self.preview(assignment), assignment, self._structure_loss)
        self._current = state.at_start_of(assignment)

    def preview(self, assignment: Assignment) -> keras.Model:
        """Return the slice that `init` uses.

        Raises:
            MistifyError: INVALID_CONFIG, the supernet knows no such property.
            ValueError: There is no task, no supernet was prepared, or the supernet knows no such class.
        """
        choices = self.slices(assignment)
        with activity("cutting"):
            return best_slice(choices, assignment.budget, assignment.profiles).network()

    def whole(self, source: Structure, prepared: bytes) -> WholeNetwork:
        """Return the supernet with all units open."""
        return whole_network(self._supernet(prepared, source))

    def slices(self, assignment: Assignment) -> Sequence[Slice]:
        """Return the slices of the assignment's task.

        Raises:
            MistifyError: INVALID_CONFIG, the supernet knows no such property.
            ValueError: There is no task, no supernet was prepared, or the supernet knows no such class.
        """
        if assignment.task is None or not assignment.prepared:
            raise ValueError("the assignment has no task or no preparation; expected both of them")
        with activity("cutting"):
            return slices_of(self._supernet(assignment.prepared, assignment.source), assignment.task)

    def reference(self, assignment: Assignment) -> keras.Model:
        """Return the slice with the best expected quality, regardless of its costs."""
        return self.preview(replace(assignment, budget={}))

    def adjust(self, weights: Mapping[str, float]) -> None:
        """Do nothing: a slice is within all limits from the start, or in none of the iterations."""

    def iterate(self) -> int:
        """Report that the slice, which exceeds its limits, is the smallest one."""
        assignment = self._state.assignment
        over = excess(self.measure(), assignment.budget)
        raise StuckError(f"{over} with the smallest slice for {assignment.task}")

    def served_tasks(self, assignment: Assignment) -> ServedTasks | None:
        """Return the tasks of the supernet; None if there is no supernet, or its quality is unknown."""
        if not assignment.prepared:
            return None
        supernet = self._supernet(assignment.prepared, assignment.source)
        return served_tasks(supernet, assignment.profiles) if supernet.quality.tasks else None

    def package_parts(self, source: Structure, prepared: bytes, network: keras.Model) -> PackageParts:
        """Return the supernet with its assembler, if packages include it."""
        return factory_parts(self._supernet(prepared, source)) if self._params.inside else PackageParts()

    def _supernet(self, prepared: bytes, source: Structure) -> Supernet:
        """Return the prepared supernet, loaded once."""
        if self._loaded is None or self._loaded[0] != prepared:
            self._loaded = prepared, Supernet.loaded(prepared, source)
        return self._loaded[1]
