"""Profiles of algorithms for planning; need no TensorFlow."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict

from executors.contract.params import Params
from mistify.jobs.pace import paced_steps

__all__ = ["AlgorithmProfile", "by_distance"]

#: Resolution of tables of steps by distance: entries per halving of the costs, and maximum number of
#: halvings.
PER_HALVING: Final = 4
_HALVINGS: Final = 8

#: Share of its accuracy that a network loses per halving. Measured for ResNet-8 on CIFAR-10: 0.057 in 900
#: steps and 0.07 to 0.1 in 133; on SNIPS 0.013 to 0.026 in 1,000; for a depthwise network trained from
#: scratch 0.005 to 0.015 in 133.
USUAL_RATE: Final = 0.03


class AlgorithmProfile(BaseModel):
    """The figures that planners use for an algorithm with certain settings, for one source.

    A worker makes the profile when it inspects the source; plans store it. Figures apply until a store has
    measurements of its own (`benchmarks/RESULTS.md`). Times are in training steps of the source.

    Attributes:
        loss_per_halving: Share of the source's accuracy lost by halving its multiply-adds in 1,000 training
            steps.
        edge_overhead: Time of an edge in addition to its training steps.
        preparation_step: Time of a step of `prepare`.
        least_path: The minimum number of goals on a path for which it pays off, if it has `shared_steps`;
            with fewer goals it is not chosen.
        preparation: Steps of `prepare`, by the distance from the source to the tightest limits, with
            `PER_HALVING` entries per halving. Empty if there is nothing to prepare.
        preparation_pays_from: The ratio of the training steps of all edges to those of `prepare` from which
            it pays off, if edges can do without it; otherwise 0.
        shared_steps: Number of a network's own training steps to which the training in `prepare` is
            equivalent.
        adaptation: Training steps until a budget is met, by the distance to it, with the same resolution.
        tune_steps: Steps that tune a network once it meets its budget, repeated while its accuracy is too
            low.
        max_steps: The maximum number of steps for one goal.
        serves_tasks: Whether networks for tasks come from one preparation for all of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    loss_per_halving: float = USUAL_RATE
    edge_overhead: int = 150
    preparation_step: float = 1.0
    least_path: int = 1
    preparation: tuple[int, ...] = ()
    preparation_pays_from: float = 0.0
    shared_steps: int = 0
    adaptation: tuple[int, ...]
    tune_steps: int
    max_steps: int
    serves_tasks: bool = False

    @classmethod
    def of(cls, params: Params, adaptation: Callable[[float], int], **figures: Any) -> "AlgorithmProfile":
        """Return the profile of an algorithm with these settings.

        Args:
            params: Settings of the algorithm in the config.
            adaptation: Returns the steps until a budget is met, given the largest ratio of the parent's to
                the goal's costs on any axis, above 1.
            figures: The other attributes.
        """
        steps = (0, *by_distance(adaptation)[1:])
        return cls(adaptation=steps, tune_steps=params.tune_steps, max_steps=params.max_steps, **figures)

    @property
    def prepares(self) -> bool:
        """Return whether the algorithm prepares anything."""
        return bool(self.preparation)

    @property
    def needs_preparation(self) -> bool:
        """Return whether no edge can do without the preparation."""
        return self.prepares and not self.preparation_pays_from

    def unprepared(self) -> "AlgorithmProfile":
        """Return the profile of the algorithm without its preparation."""
        return self.model_copy(update={"preparation": ()})

    def preparation_steps(self, halvings: float) -> int:
        """Return the steps of preparing for limits this many halvings below the source's costs."""
        return self.preparation[_place(halvings, self.preparation)] if self.preparation else 0

    def steps(self, halvings: float, rounds: int = 1, spared: int = 0) -> int:
        """Return the training steps of an edge.

        Args:
            halvings: Base-2 logarithm of the ratio of the parent's to the goal's costs.
            rounds: Number of times that the network is tuned.
            spared: Number of these steps that the network does not need.
        """
        adaptation = self.adaptation[_place(halvings, self.adaptation)]
        return min(adaptation + rounds * self.tune_steps - spared, self.max_steps)

    def paced(self, pace: float) -> Self:
        """Return the profile with the settings' numbers of training steps multiplied by a factor."""
        tables = {name: getattr(self, name) for name in ("adaptation", "preparation")}
        numbers = {name: getattr(self, name) for name in ("shared_steps", "tune_steps", "max_steps")}
        return self.model_copy(
            update={
                **{
                    name: tuple(paced_steps(steps, pace) for steps in table) for name, table in tables.items()
                },
                **{name: paced_steps(steps, pace) for name, steps in numbers.items()},
            }
        )

    def rounds(self, halvings: float) -> int:
        """Return the maximum number of rounds of tuning that `steps` allows at a distance."""
        left = self.max_steps - self.steps(halvings, 0)
        return max(1, -(-left // self.tune_steps)) if self.tune_steps else 1


def unprepared(params: Params, _source: object) -> AlgorithmProfile:
    """Return the profile of an algorithm without preparation that uses all `adapt_steps` for an edge."""
    return AlgorithmProfile.of(params, lambda _factor: params.adapt_steps)


def by_distance(steps: Callable[[float], int]) -> tuple[int, ...]:
    """Return a table of steps by the ratio of costs, from 1 on, with `PER_HALVING` entries per halving."""
    return tuple(steps(2 ** (place / PER_HALVING)) for place in range(_HALVINGS * PER_HALVING + 1))


def _place(halvings: float, figures: Sequence[int]) -> int:
    """Return the index of a distance in a table by distance."""
    return min(ceil(PER_HALVING * max(halvings, 0.0)), len(figures) - 1)
