"""The planner's profile of nested networks."""

from math import log
from typing import Final

from executors.algorithms.nested.params import NestedParams
from executors.contract.profile import AlgorithmProfile, by_distance

#: Approximate ratio of multiply-adds between a segment's widest and narrowest networks.
_RANGE: Final = 4.0

#: The share of a segment's steps after which a network trained alone would be no better: with 1,200 shared
#: steps, networks are better than with 300 steps for each goal (`benchmarks.porting.collective`).
_SHARE: Final = 1 / 4


def profile(params: NestedParams, _source: object) -> AlgorithmProfile:
    """Return the profile: segments are trained once for all edges; an edge has no steps of its own."""
    return AlgorithmProfile.of(
        params,
        lambda _factor: 0,
        preparation=by_distance(lambda factor: segments_between(factor) * params.segment_steps),
        preparation_step=1.5,
        shared_steps=round(_SHARE * params.segment_steps),
        edge_overhead=15,
        least_path=32,
    )


def segments_between(factor: float) -> int:
    """Return the number of segments between two networks with this ratio of multiply-adds."""
    return max(1, round(log(factor, _RANGE)))
