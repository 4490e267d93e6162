"""Tensors rounded to one byte a number, as devices send them to each other (CrowdHMTware III-B1)."""

from math import isfinite
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

#: The largest number that a byte stands for, in steps.
STEPS: Final = 255


class RoundedTensor(NamedTuple):
    """Numbers as steps from the least one.

    Attributes:
        steps: The numbers as uint8, in the shape of the tensor.
        step: The difference between two neighbouring numbers.
        least: The number of zero steps.
    """

    steps: npt.NDArray[np.uint8]
    step: float
    least: float

    @classmethod
    def of(cls, tensor: npt.NDArray[np.float32]) -> "RoundedTensor | None":
        """Return the nearest of 256 numbers for each one; None if some are not finite, or too far apart."""
        least = tensor.min()
        with np.errstate(over="ignore", invalid="ignore"):
            span = tensor.max() - least
        if not np.isfinite(span):
            return None
        step = np.float32(span / STEPS)
        steps = np.rint((tensor - least) / step) if step else np.zeros(tensor.shape)
        return cls(np.minimum(steps, STEPS).astype(np.uint8), float(step), float(least))

    @property
    def is_finite(self) -> bool:
        """True if all numbers can be restored."""
        return self.step >= 0 and isfinite(self.least) and isfinite(self.restored_one(STEPS))

    def restored_one(self, steps: int) -> float:
        """Return the number of some steps."""
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.float32(steps) * np.float32(self.step) + np.float32(self.least))

    def restored(self) -> npt.NDArray[np.float32]:
        """Return the numbers in float32."""
        numbers: npt.NDArray[Any] = self.steps.astype(np.float32)
        numbers *= np.float32(self.step)
        numbers += np.float32(self.least)
        return numbers


def rounded(tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a tensor as it is after it was sent in bytes; unchanged if it cannot be."""
    sent = RoundedTensor.of(tensor)
    return tensor if sent is None else sent.restored()
