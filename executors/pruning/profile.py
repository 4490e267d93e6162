"""Profiles of algorithms that reach a goal by several cuts."""

from executors.contract.profile import AlgorithmProfile
from executors.pruning.params import IterativePruningParams


def profile(params: IterativePruningParams, _source: object) -> AlgorithmProfile:
    """Return the profile of one that trains before each cut, and prepares nothing."""
    return AlgorithmProfile.of(params, params.adapting_steps)
