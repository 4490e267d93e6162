"""The planner's profile of ChamNet."""

from typing import Final

from executors.algorithms.chamnet.params import ChamNetParams
from executors.contract.profile import AlgorithmProfile, by_distance

#: The time to measure one of the predictor's first samples, in training steps.
STEPS_OF_SAMPLE: Final = 10


def profile(params: ChamNetParams, _source: object) -> AlgorithmProfile:
    """Return the profile: the first samples are measured beforehand; each cut is preceded by a search."""
    return AlgorithmProfile.of(
        params,
        params.adapting_steps,
        preparation=by_distance(lambda _factor: STEPS_OF_SAMPLE * params.samples),
        edge_overhead=350,
    )
