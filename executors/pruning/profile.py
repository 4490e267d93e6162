"""Profiles of algorithms that cut several times."""

from executors.contract.profile import AlgorithmProfile
from executors.pruning.params import IterativePruningParams


def profile(params: IterativePruningParams, _source: object) -> AlgorithmProfile:
    """Return the profile of an algorithm that trains before each cut, without preparation."""
    return AlgorithmProfile.of(params, params.adapting_steps)
