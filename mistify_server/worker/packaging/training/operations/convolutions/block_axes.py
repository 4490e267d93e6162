"""Blocks of convolution outputs that share one window of the input, along the rows or columns.

XNNPACK multiplies matrices in tiles of 7 x 32. In blocks, a kernel that makes few channels becomes a matrix
of more columns, and the gradients of a convolution with a stride, which differ from row to row, need one
matrix.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mistify_server.worker.packaging.training.operations.convolutions.connections import NO_TAP
from mistify_server.worker.packaging.training.operations.windows import WindowAxis


@dataclass(frozen=True)
class BlockAxis:
    """The input windows of output blocks along one axis.

    Attributes:
        windows: Movement of the windows over the input, one position per block.
        taps: The kernel tap between each position of a window and each output of a block, [positions,
            outputs].
    """

    windows: WindowAxis
    taps: np.ndarray[Any, Any]

    @classmethod
    def of_outputs(cls, axis: WindowAxis) -> "BlockAxis":
        """Return the blocks of a convolution: one per kernel position, which reads the image."""
        return cls(axis, np.arange(axis.kernel)[:, None])

    @classmethod
    def of_gradients(cls, axis: WindowAxis) -> "BlockAxis":
        """Return the blocks of its gradient: one stride of image rows each, which read output positions."""
        step = axis.dilation if axis.stride == 1 else 1
        first, last = axis.before // axis.stride, (axis.before + axis.size - 1) // axis.stride
        windows = WindowAxis(
            axis.extent // step + 1, 1, step, axis.extent - first, axis.outputs, last - first + 1
        )
        rows = (axis.extent - np.arange(windows.kernel) * step)[:, None] * axis.stride + np.arange(
            axis.stride
        )
        read = (rows % axis.dilation == 0) & (rows < axis.kernel * axis.dilation)
        return cls(windows, np.where(read, rows // axis.dilation, NO_TAP))

    @property
    def pairable(self) -> bool:
        """Return whether two adjacent outputs share most of their inputs."""
        axis = self.windows
        outputs = self.taps.shape[1]
        return axis.stride == axis.dilation == outputs == 1 and axis.kernel > 1 and axis.outputs % 2 == 0

    def paired(self) -> "BlockAxis":
        """Return blocks of two outputs, with windows longer by one."""
        axis = self.windows
        windows = WindowAxis(axis.kernel + 1, 2, 1, axis.before, axis.size, axis.outputs // 2)
        none = np.full((1, 1), NO_TAP)
        pair = [np.concatenate([self.taps, none]), np.concatenate([none, self.taps])]
        return BlockAxis(windows, np.concatenate(pair, 1))
