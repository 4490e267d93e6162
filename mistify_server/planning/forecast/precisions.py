"""Accuracy that packages are expected to lose by their precisions."""

from collections.abc import Mapping
from typing import Final

from mistify.costs.quantization import Quantization
from mistify.jobs.plan import Estimate

#: Accuracy that a precision has cost, as a share; the safest first. Means of `benchmarks.porting.precision`
#: over ResNet-8 and its half, with three seeds each, on validation images (benchmarks/RESULTS.md).
KNOWN_LOSS: Final[Mapping[Quantization, float]] = {
    Quantization.NONE: 0.0,
    Quantization.FLOAT16: 0.0004,
    Quantization.DYNAMIC: 0.0006,
    Quantization.INT8: 0.0007,
}

#: How much more or less other networks lose by a precision with integers, as a share.
_SCATTER: Final = 0.01


def loss_of(precision: Quantization) -> Estimate:
    """Return the share of its accuracy that a network loses by being packaged at a precision."""
    lost = KNOWN_LOSS[precision.stored_as]
    return Estimate(lost, _SCATTER if lost > KNOWN_LOSS[Quantization.FLOAT16] else lost)
