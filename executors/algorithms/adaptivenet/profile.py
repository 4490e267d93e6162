"""The planner's profile of AdaptiveNet."""

from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.algorithms.adaptivenet.supernet import replaceable
from executors.contract.profile import AlgorithmProfile, by_distance
from executors.structure import Structure


def profile(params: AdaptiveNetParams, source: Structure) -> AlgorithmProfile:
    """Return the profile: both stages of supernet training run once for all edges.

    Nothing is prepared if no block of the source can be replaced.
    """
    steps = params.distil_steps + params.path_steps
    prepares = replaceable(source, params.largest)
    return AlgorithmProfile.of(
        params, lambda _factor: 0, preparation=by_distance(lambda _factor: steps) if prepares else ()
    )
