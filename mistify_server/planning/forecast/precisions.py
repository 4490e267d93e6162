"""Expected accuracy losses by precision."""

from collections.abc import Iterable, Mapping
from typing import Final

from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal
from mistify.jobs.plan import Estimate

#: Relative loss of accuracy at each precision, safest first. Means from `benchmarks.porting.precision` over
#: ResNet-8 and its half, with three seeds each, on validation images (benchmarks/RESULTS.md).
KNOWN_LOSS: Final[Mapping[Quantization, float]] = {
    Quantization.NONE: 0.0,
    Quantization.FLOAT16: 0.0004,
    Quantization.DYNAMIC: 0.0006,
    Quantization.INT8: 0.0007,
}

#: Standard deviation of the relative loss between networks, at precisions with integers.
_SCATTER: Final = 0.01


def loss_of(precision: Quantization) -> Estimate:
    """Return the expected relative loss of accuracy from packaging a network at a precision."""
    lost = KNOWN_LOSS[precision.stored_as]
    return Estimate(lost, _SCATTER if lost > KNOWN_LOSS[Quantization.FLOAT16] else lost)


def riskiest(goals: Iterable[Goal]) -> Quantization:
    """Return the precision of goals that is expected to cost the most accuracy."""
    precisions = (goal.spec.quantization.precision for goal in goals)
    return max(precisions, key=lambda precision: loss_of(precision).mean)


def reasons_for_precisions(goals: Iterable[Goal]) -> dict[str, str]:
    """Return the reasons for precisions that the server chose, without goals with a configured precision."""
    return {goal.id: goal.precision_choice for goal in goals if goal.precision_choice}
