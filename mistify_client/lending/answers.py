"""The comparison of a helper's answers with those of this device."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from mistify.costs.quantization import Quantization
from mistify.package.manifest import TensorInfo
from mistify.package.rounding import STEPS
from mistify_client.assembly.executions import Tensors

#: The largest difference between float answers of processors with other instructions, as a share of the
#: largest value.
_TOLERANCE: Final = 1e-3

#: With quantization on the fly, a last bit can move an activation by one of 255 steps.
_DYNAMIC_TOLERANCE: Final = 0.05


def wrong_output(
    answer: Tensors,
    expected: Tensors,
    outputs: Sequence[TensorInfo],
    precision: Quantization,
    *,
    is_rounded: bool = False,
) -> str | None:
    """Return the name of an output that differs by more than rounding; None if all are right.

    Args:
        answer: The helper's outputs by name.
        expected: The outputs that this device computed for the same inputs.
        precision: Precision of the package, on which the tolerance depends.
        is_rounded: Both were rounded to bytes, so that a number may be in the next step.
    """
    for info in outputs:
        received, own = answer[info.name], expected[info.name]
        if np.issubdtype(own.dtype, np.integer):
            allowed = 1.0
        else:
            share = _DYNAMIC_TOLERANCE if precision is Quantization.DYNAMIC else _TOLERANCE
            allowed = share * float(np.abs(own).max(initial=0.0))
            if is_rounded:
                allowed += (1 + share) * float(np.ptp(own)) / STEPS
        difference = np.abs(received.astype(np.float64) - own.astype(np.float64))
        if not (difference <= allowed).all():  # also if a value is not finite
            return info.name
    return None
