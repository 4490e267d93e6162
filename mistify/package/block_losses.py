"""The losses of blocks that replace others, learned from what whole subnets lose (AdaptiveNet 5.1)."""

from typing import Final

import numpy as np
import numpy.typing as npt

#: How much the loss that a block adds by itself is trusted over that of one subnet that has it.
_TRUST: Final = 0.3


def corrected_losses(
    alone: npt.ArrayLike, present: npt.ArrayLike, measured: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """Return the losses of blocks, corrected so that their sums come closer to those of whole subnets.

    A ridge regression explains the errors of the sums by the blocks that a subnet has.

    Args:
        alone: The loss that each block adds by itself [blocks].
        present: Whether a subnet has a block [subnets, blocks].
        measured: The loss that each subnet adds [subnets].
    """
    added, has = np.asarray(alone, np.float64), np.asarray(present, np.float64)
    errors = np.asarray(measured, np.float64) - has @ added
    return added + np.linalg.solve(has.T @ has + _TRUST * np.eye(len(added)), has.T @ errors)
