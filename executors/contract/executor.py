"""The contract of an adaptation algorithm (paper section 4.2), and the registry of algorithms."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import keras

from executors.contract.parts import PackageParts
from executors.contract.preparation import PreparationProgress
from executors.params import Params
from executors.structure import Structure
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.costs.budget import Budget, Costs
from mistify.costs.profiles import Profile
from mistify.errors import ErrorCode, MistifyError
from mistify.plugins import UnusablePlugInError, load_class, plug_ins

__all__ = ["AdaptationExecutor", "Aptitude", "Assignment", "StuckError"]

ENTRY_POINTS: Final = "mistify.executors"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Assignment:
    """One edge of a goal tree, as an executor takes it.

    Attributes:
        model: The parent's network; the executor works on a copy.
        budget: The goal's limits.
        profiles: The hardware whose latency the budget limits.
        setup: Data, teacher and settings of training.
        seed: Seed for everything random on this edge.
        source: The structure of the source, which the network descends from, with the rules for its layers.
        prepared: The result of `prepare` for the source and its data.
    """

    model: keras.Model
    budget: Budget
    profiles: tuple[Profile, ...]
    setup: TrainingSetup
    seed: int
    source: Structure
    prepared: bytes = b""


@dataclass(frozen=True)
class Aptitude:
    """Measurements of an algorithm, used until a store knows better (`benchmarks/RESULTS.md`).

    Attributes:
        gain: Share of the source's accuracy that a halving of its multiply-adds loses less than with
            MorphNet; negative where it loses more.
        gain_at_latency: The same in addition where latency is limited.
        edge: Cost of an edge besides its training steps, in training steps of the source.
        preparing_step: Cost of a step of `prepare`, in training steps of the source.
        least_path: The fewest goals on one path for which it pays off, where it has `shared_steps`; with
            fewer it is not chosen.
    """

    gain: float = 0.0
    gain_at_latency: float = 0.0
    edge: int = 150
    preparing_step: float = 1.0
    least_path: int = 1


class AdaptationExecutor(ABC):
    """Adapts one network to one goal, a little at each iteration (paper 4.2).

    The loop, its limits, the checkpoints and the final tuning belong to the caller:

        executor = MorphNetExecutor(params)
        executor.init(assignment)
        while not meets(executor.measure(), budget):
            executor.adjust(weights)
            executor.iterate()
        executor.trainer.train(schedule)
        network = executor.network()

    The same assignments, one after the other, give the same networks. One thread uses an executor.

    Attributes:
        aptitude: The strengths and costs by which `auto` chooses it; None where only a config that names it
            does.
    """

    name: ClassVar[str]
    params_class: ClassVar[type[Params]] = Params
    aptitude: ClassVar[Aptitude | None] = None

    @abstractmethod
    def __init__(self, params: Params) -> None:
        """Remember the settings; no work is done here."""

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Compute everything that depends on a source and its data alone; it is kept, and given to all edges.

        It may be interrupted at any time, and is then called again, with the parts kept so far. A subclass
        that overrides it says in `preparing_steps` how long it takes.

        Args:
            assignment: The source itself with the least limits of all goals, on each axis.
            progress: Receives the progress, and keeps the parts that are done.
        """
        return b""

    @classmethod
    def prepares(cls, params: Params, source: Structure) -> bool:
        """Return whether there is anything to prepare for a source, as far as that is known beforehand."""
        return cls.prepare is not AdaptationExecutor.prepare

    @classmethod
    def prepares_from(cls, params: Params, least: Budget) -> tuple[Mapping[str, object], Budget]:
        """Return the settings and limits that `prepare` depends on: with equal ones its result is the same.

        Args:
            least: The least limits of all edges.

        Returns:
            The settings by name, as in JSON, and the limits; all of both by default.
        """
        return params.model_dump(mode="json"), least

    @classmethod
    def preparing_steps(cls, params: Params, distance: float) -> int:
        """Return the training steps of the source that take as long as `prepare`; 0 if it does nothing.

        Args:
            distance: The source's costs over the least limit, on the axis where the ratio is largest.
        """
        return 0

    @classmethod
    def shared_steps(cls, params: Params) -> int:
        """Return the training steps of its own from which a network would learn as much as from `prepare`."""
        return 0

    @classmethod
    def adapting_steps(cls, params: Params, distance: float) -> int:
        """Return the training steps until a budget is met, as far as that is known beforehand.

        Args:
            distance: The parent's costs over the goal's, on the axis where the ratio is largest; above 1.
        """
        return params.adapt_steps

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


def executor_class(name: str) -> type[AdaptationExecutor]:
    """Return the algorithm of a name, from the entry points `mistify.executors`.

    Raises:
        MistifyError: INVALID_CONFIG, with the names that exist, or why its plug-in cannot be used.
    """
    points = plug_ins(ENTRY_POINTS)
    if name not in points:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"algorithm {name!r} is unknown; expected one of {', '.join(points)}",
        )
    try:
        return load_class(points[name], AdaptationExecutor)
    except UnusablePlugInError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"algorithm {name!r} cannot be used: {error}; fix or remove the plug-in that defines it",
        ) from error


def executor_classes() -> dict[str, type[AdaptationExecutor]]:
    """Return all algorithms by name, except for plug-ins that cannot be used."""
    classes = {}
    for name, point in plug_ins(ENTRY_POINTS).items():
        try:
            classes[name] = load_class(point, AdaptationExecutor)
        except UnusablePlugInError as error:
            _log.warning("the algorithm %s is left out: %s", name, error)
    return classes
