"""What a planner has to know of nested networks."""

from math import log
from typing import Final

from executors.algorithms.nested.params import NestedParams
from executors.contract.profile import AlgorithmProfile, by_distance

#: How many times the multiply-adds of its narrowest network a segment has, about.
_RANGE: Final = 4.0

#: The part of a segment's steps in which one of its networks would learn no more by itself: those of 1,200
#: steps are better than with 300 for each goal (`benchmarks.collective`).
_SHARE: Final = 1 / 4


def profile(params: NestedParams, _source: object) -> AlgorithmProfile:
    """Return the profile: the steps of the segments are taken once for all edges, and none for one edge."""
    return AlgorithmProfile.of(
        params,
        lambda _factor: 0,
        preparation=by_distance(lambda factor: segments_between(factor) * params.segment_steps),
        preparation_step=1.5,
        shared_steps=round(_SHARE * params.segment_steps),
        edge_overhead=50,
        least_path=32,
    )


def segments_between(factor: float) -> int:
    """Return the segments between two networks, of which one has so many times the multiply-adds."""
    return max(1, round(log(factor, _RANGE)))
