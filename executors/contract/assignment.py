"""The input of an executor for one edge."""

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
    """One edge of a goal tree, as passed to an executor.

    Attributes:
        model: The parent's network; the executor works on a copy.
        budget: The goal's limits.
        profiles: The hardware with latency limits in the budget.
        setup: Training data, teacher and settings.
        seed: Seed for all randomness on this edge.
        source: The structure of the source from which the network descends, with the rules for its layers.
        prepared: The result of `prepare` for the source and its data.
        task: The task of the network and of the setup's data; None for everything that the data teach. The
            source is restricted to its classes unless `Algorithm.serves_tasks`.
    """

    model: keras.Model
    budget: Budget
    profiles: tuple[Profile, ...]
    setup: TrainingSetup
    seed: int
    source: Structure
    prepared: bytes = b""
    task: TaskConfig | None = None
