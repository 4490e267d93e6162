"""The losses of replacement blocks, corrected with the measured losses of whole subnets (AdaptiveNet 5.1)."""

from typing import Final

import numpy as np
import numpy.typing as npt

#: Weight of a block's individually measured loss, relative to that of one subnet that contains it.
_INDIVIDUAL_WEIGHT: Final = 0.3


def corrected_losses(
    alone: npt.ArrayLike, present: npt.ArrayLike, measured: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """Return the losses of blocks, corrected so that their sums are closer to the losses of whole subnets.

    A ridge regression explains the errors of the sums by the blocks in a subnet.

    Args:
        alone: The added loss of each block on its own [blocks].
        present: Whether a subnet contains a block [subnets, blocks].
        measured: The added loss of each subnet [subnets].
    """
    added, has = np.asarray(alone, np.float64), np.asarray(present, np.float64)
    errors = np.asarray(measured, np.float64) - has @ added
    return added + np.linalg.solve(has.T @ has + _INDIVIDUAL_WEIGHT * np.eye(len(added)), has.T @ errors)
