"""The slice of a goal: the feasible limit with the best expected quality (NN-Factory 3.5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from executors.algorithms.nnfactory.supernet import Assembly, Supernet
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, exceeded, tightest_ratio
from mistify.costs.profiles import Profile


@dataclass(frozen=True)
class SliceCandidate:
    """A candidate slice for a goal.

    Attributes:
        limit: The largest share of open units that the assembler was asked for.
        assembly: The units that it opened.
        costs: The costs of the slice.
        expected: The mean quality of trained tasks within the limit.
    """

    limit: float
    assembly: Assembly
    costs: Mapping[str, float]
    expected: float


def candidates(
    supernet: Supernet, task: npt.NDArray[np.float32], profiles: tuple[Profile, ...]
) -> list[SliceCandidate]:
    """Return the slices of a task, the smallest limit first.

    Costs are those of the slice's widths, by the profiles of hardware: latency needs no regression on
    measured slices, as in the paper.

    Args:
        supernet: A trained supernet.
        task: The encoded task [properties].
        profiles: The hardware whose latency counts.
    """
    limits = supernet.quality.tried_limits()
    return [
        SliceCandidate(
            limit,
            assembly,
            costs_of(supernet.structure.network(assembly.widths), profiles),
            supernet.quality.expected(limit),
        )
        for limit, assembly in zip(limits, supernet.assemblies(task, limits), strict=True)
    ]


def best_candidate(choices: Sequence[SliceCandidate], budget: Budget) -> SliceCandidate:
    """Return the best slice within a budget; if there is none, the one that exceeds it least.

    More open units are not always better: quality may drop close to the limit 1, which is rarely trained.
    """
    within = [one for one in choices if not exceeded(one.costs, budget)]
    if within:
        return max(within, key=lambda one: one.expected)
    return max(choices, key=lambda one: tightest_ratio(one.costs, budget))
