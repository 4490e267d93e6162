"""Constants that depend on the batch size, such as the target shape of a reshape.

Exporters compute target shapes from the shapes of tensors. With a free batch, these are not constants. Every
such value is computed for two batch sizes: an entry that is equal for both is fixed, and one that is
proportional to the batch size is the batch. No real size can be confused with it.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from executors.sources.onnx.errors import UnsupportedNodeError

Array: TypeAlias = npt.NDArray[Any]

#: A size of a tensor's axis; None for the batch.
Size: TypeAlias = int | None

#: The two batch sizes.
PROBES: Final = (5, 7)


@dataclass(frozen=True)
class BatchDependent:
    """A constant that depends on the batch size, for each of `PROBES`."""

    values: tuple[Array, Array]

    @property
    def constant(self) -> Array:
        """The constant with a single entry along the batch.

        Raises:
            UnsupportedNodeError: Its entries differ along the batch.
        """
        first, second = self.values
        if first.ndim != second.ndim:
            raise UnsupportedNodeError("has a constant whose rank depends on the batch size")
        for axis, (one, other) in enumerate(zip(first.shape, second.shape, strict=True)):
            if one != other:
                first, second = first.take([0], axis), _alike_along(second, axis)
        if not np.array_equal(first, second):
            raise UnsupportedNodeError("has a constant whose values depend on the batch size")
        return first


def _alike_along(array: Array, axis: int) -> Array:
    first = array.take([0], axis)
    if not np.array_equal(np.broadcast_to(first, array.shape), array):
        raise UnsupportedNodeError("has a constant that differs along the batch")
    return first


def joined(values: tuple[Array, Array]) -> "Array | BatchDependent":
    """Return the value for both batch sizes, as a plain constant if it is the same for both."""
    first, second = values
    same = first.shape == second.shape and first.dtype == second.dtype and np.array_equal(first, second)
    return first if same else BatchDependent(values)


def for_probe(value: Any, probe: int) -> Any:
    """Return a constant for the batch size with this index in `PROBES`."""
    return value.values[probe] if isinstance(value, BatchDependent) else value


def sizes_of(value: "Array | BatchDependent", merged: Size = None) -> list[Size]:
    """Return the sizes in a shape.

    Args:
        merged: Replaces multiples of the batch size; None to refuse them.

    Raises:
        UnsupportedNodeError: An entry is neither fixed nor the batch size itself.
    """
    if not isinstance(value, BatchDependent):
        return [int(size) for size in value.reshape(-1)]
    first, second = (array.reshape(-1) for array in value.values)
    return [_size(int(one), int(other), merged) for one, other in zip(first, second, strict=True)]


def _size(one: int, other: int, merged: Size) -> Size:
    if one == other:
        return one
    if (one, other) == PROBES:
        return None
    if merged is not None and one * PROBES[1] == other * PROBES[0]:
        return merged
    raise UnsupportedNodeError("merges the batch with another axis")
