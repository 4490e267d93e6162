"""What a planner has to know of ChamNet."""

from typing import Final

from executors.algorithms.chamnet.params import ChamNetParams
from executors.contract.profile import AlgorithmProfile, by_distance

#: Measuring one of the predictor's first samples takes as long as so many training steps.
STEPS_OF_SAMPLE: Final = 10


def profile(params: ChamNetParams, _source: object) -> AlgorithmProfile:
    """Return the profile: it measures the first samples beforehand, and searches before each cut."""
    return AlgorithmProfile.of(
        params,
        params.adapting_steps,
        preparation=by_distance(lambda _factor: STEPS_OF_SAMPLE * params.samples),
        edge_overhead=350,
    )
