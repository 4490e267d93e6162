"""The planner's profile of MorphNet."""

from math import ceil
from typing import Final

from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.profile import AlgorithmProfile, by_distance
from executors.pruning.loss_table import measured_widths
from executors.structure import Structure

#: The time to measure the loss of one cut, in examples of training.
_EXAMPLES_OF_CUT: Final = 512

#: The training steps of all edges over the steps of the preparation, from which the preparation pays off. It
#: gains as much as a third more steps would, if there are few.
_PAYS_FROM: Final = 6.0


def profile(params: MorphNetParams, source: Structure) -> AlgorithmProfile:
    """Return the profile: the losses of the groups are measured once for all edges, if that pays off."""
    steps = steps_of_table(params, source)
    return AlgorithmProfile.of(
        params,
        params.adapting_steps,
        preparation=by_distance(lambda _factor: steps) if steps else (),
        preparation_pays_from=_PAYS_FROM,
    )


def steps_of_table(params: MorphNetParams, source: Structure) -> int:
    """Return the time to measure the losses of a source's groups, in training steps."""
    cuts = sum(len(measured_widths(group)) for group in source.groups.values())
    return ceil(cuts * _EXAMPLES_OF_CUT / params.batch_size)
