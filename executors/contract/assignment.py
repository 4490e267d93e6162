"""What an executor is given for an edge."""

from dataclasses import dataclass

import keras

from executors.structure import Structure
from executors.training.setup import TrainingSetup
from mistify.config.task import TaskConfig
from mistify.costs.budget import Budget
from mistify.costs.profiles import Profile

__all__ = ["Assignment"]


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
        task: The task of the network, whose data the setup has; None for all that the data teach. The source
            is cut to its classes unless `Algorithm.serves_tasks`.
    """

    model: keras.Model
    budget: Budget
    profiles: tuple[Profile, ...]
    setup: TrainingSetup
    seed: int
    source: Structure
    prepared: bytes = b""
    task: TaskConfig | None = None
