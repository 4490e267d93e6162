"""The contract of an adaptation algorithm (paper section 4.2)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import keras

from executors.contract.assignment import Assignment
from executors.contract.package_parts import PackageParts
from executors.contract.params import Params
from executors.contract.preparation import PreparationProgress
from executors.structure import Structure
from executors.training.trainer import Trainer
from mistify.costs.budget import Costs

__all__ = ["AdaptationExecutor", "StuckError"]


class AdaptationExecutor(ABC):
    """Adapts one network to one goal, a little at each iteration (paper 4.2).

    The loop, its limits, the checkpoints and the final tuning belong to the caller:

        executor = executor_class(name)(params)
        executor.init(assignment)
        while not meets(executor.measure(), budget):
            executor.adjust(weights)
            executor.iterate()
        executor.trainer.train(schedule)
        network = executor.network()

    The same assignments, one after the other, give the same networks. One thread uses an executor. What has
    to be known of it before it runs is said by its `executors.contract.algorithm.Algorithm`.
    """

    @abstractmethod
    def __init__(self, params: Params) -> None:
        """Remember the settings; no work is done here."""

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Compute everything that depends on a source and its data alone; it is kept, and given to all edges.

        It may be interrupted at any time, and is then called again, with the parts kept so far. The
        `preparation` of the algorithm's profile says how long it takes.

        Args:
            assignment: The source itself with the least limits of all goals, on each axis.
            progress: Receives the progress, and keeps the parts that are done.
        """
        return b""

    @property
    @abstractmethod
    def trainer(self) -> Trainer:
        """The trainer of the present network, from `init` on; `iterate` may replace it."""

    @property
    def calibrated(self) -> bool:
        """Check whether batch norms have the right statistics already; otherwise they are measured again.

        They are right where a network was put together from calibrated parts.
        """
        return False

    @abstractmethod
    def init(self, assignment: Assignment) -> None:
        """Take the network, the goal and the data. The assignment's model is never changed.

        May be called again for the next edge of a path, with the last result of `network`: the executor then
        continues with everything that it has compiled and learned.
        """

    def preview(self, assignment: Assignment) -> keras.Model | None:
        """Return a network of the architecture that an edge will end at; None where it is unknown.

        Its weights mean nothing: it only serves to be measured. Changes nothing.
        """
        return None

    def reference(self, assignment: Assignment) -> keras.Model | None:
        """Return the network whose answers stand for those that nobody knows, to the task of an assignment.

        Needs no `init`, and changes nothing. Only algorithms that serve tasks have one.
        """
        return None

    def package_parts(self, source: Structure, prepared: bytes, network: keras.Model) -> PackageParts:
        """Return a package's parts beside its network: nothing, unless an algorithm overrides it.

        Needs no `init`, and changes nothing.

        Args:
            source: The structure of the source.
            prepared: The result of `prepare` for the source; empty where there was nothing to prepare.
            network: The goal's network, before it is compressed or converted.
        """
        return PackageParts()

    @abstractmethod
    def adjust(self, weights: Mapping[str, float]) -> None:
        """Steer the following iterations: the share of attention for each axis of the budget.

        Shares sum to 1, or to 0 while a network that meets its budget is tuned.
        """

    @abstractmethod
    def iterate(self) -> int:
        """Run one iteration of the algorithm; returns its training steps.

        Raises:
            StuckError: Nothing more can be cut and the goal is not met.
        """

    @abstractmethod
    def measure(self) -> Costs:
        """Return the costs of the present network. Changes nothing."""

    @abstractmethod
    def network(self) -> keras.Model:
        """Return a copy of the present network, physically at its widths."""


class StuckError(Exception):
    """An algorithm has nothing left to change; the present network is the best one."""
