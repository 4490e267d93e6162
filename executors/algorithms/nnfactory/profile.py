"""The planner's profile of NN-Factory."""

from executors.algorithms.nnfactory.gates import enough_units, gated_groups
from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.contract.profile import AlgorithmProfile, by_distance
from executors.structure import Structure


def profile(params: NNFactoryParams, source: Structure) -> AlgorithmProfile:
    """Return the profile: all training takes place in `prepare`, and none for single edges.

    Nothing is prepared if the source has too few units for gates.
    """
    steps = params.answer_steps + params.gate_steps
    prepares = enough_units(gated_groups(source))
    return AlgorithmProfile.of(
        params, lambda _factor: 0, preparation=by_distance(lambda _factor: steps) if prepares else ()
    )
