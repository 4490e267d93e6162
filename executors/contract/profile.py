"""What a planner has to know of an algorithm; it needs no TensorFlow."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from executors.contract.params import Params

__all__ = ["AlgorithmProfile", "by_distance"]

#: Entries of steps by distance for each halving of the costs, and the most halvings.
PER_HALVING: Final = 4
_HALVINGS: Final = 8

#: Share of its accuracy that ResNet-8 loses by a halving on CIFAR-10: 0.057 in 900 steps and 0.07 to 0.1 in
#: 133; on SNIPS 0.013 to 0.026 in 1,000, a depthwise network that was trained from nothing 0.005 to 0.015 in
#: 133.
USUAL_RATE: Final = 0.03


class AlgorithmProfile(BaseModel):
    """The figures by which planners judge an algorithm with certain settings, for one source.

    A worker makes it when it inspects the source; plans keep it. Figures hold until a store knows better
    (`benchmarks/RESULTS.md`); times are in training steps of the source.

    Attributes:
        loss_per_halving: Share of the source's accuracy that a halving of its multiply-adds costs in 1,000
            training steps.
        edge_overhead: Time of an edge besides its training steps.
        preparation_step: Time of a step of `prepare`.
        least_path: The fewest goals on one path for which it pays off, where it has `shared_steps`; with
            fewer it is not chosen.
        preparation: Steps of `prepare`, by the distance from the source to the least limits: `PER_HALVING`
            for each halving. Empty where there is nothing to prepare.
        shared_steps: Steps of its own from which a network learns as much as from what `prepare` trains.
        adaptation: Training steps until a budget is met, by the distance to it, likewise.
        tune_steps: Steps that tune a network which meets its budget, repeated while accuracy falls short.
        max_steps: The most steps of one goal.
        serves_tasks: `Algorithm.serves_tasks`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss_per_halving: float = USUAL_RATE
    edge_overhead: int = 150
    preparation_step: float = 1.0
    least_path: int = 1
    preparation: tuple[int, ...] = ()
    shared_steps: int = 0
    adaptation: tuple[int, ...]
    tune_steps: int
    max_steps: int
    serves_tasks: bool = False

    @classmethod
    def of(cls, params: Params, adaptation: Callable[[float], int], **figures: Any) -> "AlgorithmProfile":
        """Return the profile of an algorithm with these settings.

        Args:
            params: The settings.
            adaptation: Returns the steps until a budget is met, by the parent's costs over the goal's, on the
                axis where that is most; above 1.
            figures: The other attributes.
        """
        steps = (0, *by_distance(adaptation)[1:])
        return cls(adaptation=steps, tune_steps=params.tune_steps, max_steps=params.max_steps, **figures)

    @property
    def prepares(self) -> bool:
        """Return whether it prepares anything."""
        return bool(self.preparation)

    def preparation_steps(self, halvings: float) -> int:
        """Return the steps of preparing for limits that are so many halvings below the source's costs."""
        return self.preparation[_place(halvings, self.preparation)] if self.preparation else 0

    def steps(self, halvings: float, rounds: int = 1) -> int:
        """Return the training steps of an edge.

        Args:
            halvings: Base-2 logarithm of the costs of the parent over those of the goal.
            rounds: How often the network is tuned.
        """
        adaptation = self.adaptation[_place(halvings, self.adaptation)]
        return min(adaptation + rounds * self.tune_steps, self.max_steps)

    def rounds(self, halvings: float) -> int:
        """Return the most rounds of tuning that `steps` allows at a distance."""
        left = self.max_steps - self.steps(halvings, 0)
        return max(1, -(-left // self.tune_steps)) if self.tune_steps else 1


def unprepared(params: Params, _source: object) -> AlgorithmProfile:
    """Return the profile of an algorithm that prepares nothing and takes all `adapt_steps` for an edge."""
    return AlgorithmProfile.of(params, lambda _factor: params.adapt_steps)


def by_distance(steps: Callable[[float], int]) -> tuple[int, ...]:
    """Return the steps for costs that fall by factors: from 1, with `PER_HALVING` for each halving."""
    return tuple(steps(2 ** (place / PER_HALVING)) for place in range(_HALVINGS * PER_HALVING + 1))


def _place(halvings: float, figures: Sequence[int]) -> int:
    """Return the place of a distance in figures by distance."""
    return min(ceil(PER_HALVING * max(halvings, 0.0)), len(figures) - 1)
