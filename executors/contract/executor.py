"""The contract of an adaptation algorithm (paper section 4.2)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import keras

from executors.contract.assignment import Assignment
from executors.contract.package_parts import PackageParts
from executors.contract.params import Params
from executors.contract.preparation import PreparationProgress
from executors.contract.slices import Slice, WholeNetwork
from executors.structure import Structure
from executors.training.trainer import Trainer
from mistify.costs.budget import Costs
from mistify.scenarios.served import ServedTasks

__all__ = ["AdaptationExecutor", "StuckError"]


class AdaptationExecutor(ABC):
    """An algorithm that adapts one network to one goal, step by step (paper 4.2).

    The caller is responsible for the loop, its limits, the checkpoints and the final tuning:

        executor = executor_class(name)(params)
        executor.init(assignment)
        while not meets(executor.measure(), budget):
            executor.adjust(weights)
            executor.iterate()
        executor.trainer.train(schedule)
        network = executor.network()

    The same sequence of assignments gives the same networks. An executor is used by a single thread. Its
    properties that planners need before it runs are in its `executors.contract.algorithm.Algorithm`.
    """

    @abstractmethod
    def __init__(self, params: Params) -> None:
        """Store the settings; no work is done here."""

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Compute everything that depends only on a source and its data; all edges get the result.

        It may be interrupted at any time, and is then called again with the parts kept so far. The
        `preparation` of the algorithm's profile states its duration.

        Args:
            assignment: The source itself with the tightest limit of all goals on each axis.
            progress: Receives the progress, and stores the finished parts.
        """
        return b""

    @property
    @abstractmethod
    def trainer(self) -> Trainer:
        """The trainer of the current network, from `init` on; `iterate` may replace it."""

    @property
    def calibrated(self) -> bool:
        """Check whether the batch-norm statistics are already correct; otherwise they are recalibrated.

        They are correct if a network was assembled from calibrated parts.
        """
        return False

    @abstractmethod
    def init(self, assignment: Assignment) -> None:
        """Accept the network, the goal and the data. The assignment's model is never changed.

        May be called again for the next edge of a path, with the last result of `network`: the executor then
        continues with everything that it has compiled and learned.
        """

    def for_edge(self) -> "AdaptationExecutor | None":
        """Return an executor for one edge that shares what this one has loaded and compiled; None by default.

        Workers keep one executor for each preparation. What is shared must not affect the result: the network
        of an edge is the same, to the bit, whichever edges came before. None: each edge has a new executor.
        """
        return None

    def preview(self, assignment: Assignment) -> keras.Model | None:
        """Return a network with the final architecture of an edge; None if that is unknown.

        Its weights are arbitrary: it is only used for measurements. Changes nothing.
        """
        return None

    def whole(self, source: Structure, prepared: bytes) -> WholeNetwork | None:
        """Return the network that networks for tasks are slices of; None for other algorithms.

        Workers convert it once for all of its slices. Needs no `init`, and changes nothing.

        Args:
            prepared: The result of `prepare` for the source; empty if nothing was prepared.
        """
        return None

    def slices(self, assignment: Assignment) -> Sequence[Slice]:
        """Return the slices of the `whole` network that may serve an assignment, the fewest units first.

        A worker takes one of them without a training step, and neither calls `init` nor `iterate`, unless the
        goal's network is to be tuned. Needs no `init`, and changes nothing.
        """
        return ()

    def reference(self, assignment: Assignment) -> keras.Model | None:
        """Return the network whose answers replace unknown answers to the task of an assignment.

        Requires no `init` and has no side effects. Only algorithms that serve tasks return a network.
        """
        return None

    def served_tasks(self, assignment: Assignment) -> ServedTasks | None:
        """Return the tasks that networks can be made for once the source is prepared; None by default.

        Requires no `init` and has no side effects. Only algorithms that serve tasks return any.

        Args:
            assignment: The source with its preparation, and the hardware for which costs are of interest.
        """
        return None

    def package_parts(self, source: Structure, prepared: bytes, network: keras.Model) -> PackageParts:
        """Return a package's parts other than its network; none by default.

        Needs no `init`, and changes nothing.

        Args:
            prepared: The result of `prepare` for the source; empty if nothing was prepared.
            network: The goal's network, before compression and conversion.
        """
        return PackageParts()

    @abstractmethod
    def adjust(self, weights: Mapping[str, float]) -> None:
        """Set the weight of each axis of the budget for the following iterations.

        Weights sum to 1, or to 0 while a network that meets its budget is tuned.
        """

    @abstractmethod
    def iterate(self) -> int:
        """Run one iteration of the algorithm; return its number of training steps.

        Raises:
            StuckError: Nothing more can be cut, and the goal is not met.
        """

    @abstractmethod
    def measure(self) -> Costs:
        """Return the costs of the current network. Changes nothing."""

    @abstractmethod
    def network(self) -> keras.Model:
        """Return a copy of the current network at its actual widths, without masked units."""


class StuckError(Exception):
    """An algorithm has nothing left to change; the current network is the best one."""
