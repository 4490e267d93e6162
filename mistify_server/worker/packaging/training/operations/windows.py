"""Kernel windows of an image as slices, which are fast in LiteRT at any stride.

A stride s divides the rows of a padded image into blocks of s rows; the row at index p of its block has the
phase p.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.training.operations.builtins import UntrainableError


@dataclass(frozen=True)
class WindowAxis:
    """The movement of a kernel along the rows or columns of an image.

    Attributes:
        kernel: Number of kernel taps.
        stride: Rows between successive kernel positions.
        dilation: Rows between successive taps.
        before: Rows of padding before the first row.
        size: Number of image rows.
        outputs: Number of kernel positions, that is, output rows.
    """

    kernel: int
    stride: int
    dilation: int
    before: int
    size: int
    outputs: int

    @classmethod
    def of(cls, kernel: int, stride: int, dilation: int, size: int | None, padding: str) -> "WindowAxis":
        """Return the axis for TensorFlow's padding "SAME" or "VALID".

        Args:
            kernel: Number of kernel taps.
            stride: Rows between successive kernel positions.
            dilation: Rows between successive taps.
            size: Number of image rows; None if unknown.
            padding: "SAME" or "VALID".

        Raises:
            UntrainableError: The size is unknown, or the padding is explicit.
        """
        if size is None or padding not in ("SAME", "VALID"):
            raise UntrainableError(f"an image of unknown size, or {padding} padding")
        reach = (kernel - 1) * dilation + 1
        same = padding == "SAME"
        outputs = -(-(size if same else size - reach + 1) // stride)
        before = max((outputs - 1) * stride + reach - size, 0) // 2 if same else 0
        return cls(kernel, stride, dilation, before, size, outputs)

    def block_and_phase(self, tap: int) -> tuple[int, int]:
        """Return the first block and the phase that a tap reads."""
        return divmod(tap * self.dilation, self.stride)

    @property
    def extent(self) -> int:
        """Return the number of blocks from the first to the last tap."""
        return self.block_and_phase(self.kernel - 1)[0]

    @property
    def blocks(self) -> int:
        """Return the number of blocks that are read."""
        return self.outputs + self.extent

    @property
    def padded(self) -> int:
        """Return the number of rows that are read."""
        return self.blocks * self.stride

    @property
    def read(self) -> np.ndarray[Any, Any]:
        """Return the rows of the padded image that are read at each kernel position, [outputs, kernel]."""
        return np.arange(self.outputs)[:, None] * self.stride + np.arange(self.kernel) * self.dilation

    @property
    def after(self) -> int:
        """Return the rows of padding after the last row; 0 if the last rows are not read."""
        return max(int(self.read.max()) + 1 - self.before - self.size, 0)


def cut(tensor: Any, begin: list[int], size: list[int]) -> Any:
    """Return a slice; a size of -1 means everything from the first index.

    Known sizes are made explicit: XNNPACK, which uses all threads, supports no other slices.

    Args:
        begin: The first index along each axis.
        size: The length along each axis.
    """
    lengths = tensor.shape.as_list()
    left = [-1 if length is None else length - start for length, start in zip(lengths, begin, strict=True)]
    return tf.slice(
        tensor, begin, [rest if length == -1 else length for length, rest in zip(size, left, strict=True)]
    )


def padded(image: Any, margins: Sequence[tuple[int, int]], value: float = 0.0) -> Any:
    """Pad the rows and columns of an image.

    Merging axes lets XNNPACK copy whole lines instead of single pixels.

    Args:
        image: [n, rows, columns, c].
        margins: Padding before and after the rows, and before and after the columns.
        value: The value of the padding.
    """
    if not any(map(any, margins)):
        return image
    _, height, width, channels = image.shape
    rows, columns = margins
    lines = tf.reshape(image, [-1, height, width * channels])
    line_margins = [[0, 0], list(rows), [channels * margin for margin in columns]]
    wide = tf.pad(lines, line_margins, constant_values=value)
    return tf.reshape(wide, [-1, height + sum(rows), width + sum(columns), channels])


def gathered(image: Any, read: np.ndarray[Any, Any], unit: int) -> Any:
    """Return columns of an image side by side for each place that reads them, [n, places, units * unit * c].

    A reshape to or from seven dimensions is not delegated to XNNPACK, which would copy; LiteRT does it in
    place.

    Args:
        image: [n, rows, columns, c].
        read: Numbers of the units that each place reads, [places, units]; a row has columns / unit of them.
        unit: Columns that are next to each other in all windows.
    """
    _, height, width, channels = image.shape
    flat = tf.reshape(image, [-1, height * width // unit, 1, 1, 1, 1, unit * channels])
    windows = tf.gather(flat, read.astype(np.int32), axis=1)
    return tf.reshape(windows, [-1, len(read), read.shape[1] * unit * channels])


def fitted(image: Any, rows: WindowAxis, columns: WindowAxis, value: float = 0.0) -> Any:
    """Pad or crop an image to the part that is read.

    Args:
        image: [n, rows, columns, c].
        rows: The second axis.
        columns: The third axis.
        value: The value of the padding.

    Returns:
        [n, rows.padded, columns.padded, c].
    """
    after = [axis.padded - axis.before - axis.size for axis in (rows, columns)]
    margins = [(axis.before, max(more, 0)) for axis, more in zip((rows, columns), after, strict=True)]
    image = padded(image, margins, value)
    if min(after) < 0:
        image = cut(image, [0, 0, 0, 0], [-1, rows.padded, columns.padded, -1])
    return image


def bands_read(image: Any, rows: WindowAxis, columns: WindowAxis) -> dict[int, Any]:
    """Return the image as read by the column taps, for each phase of the rows.

    Each row tap reads `rows.outputs` blocks, starting at its own.

    Args:
        image: An image returned by `fitted`.
        rows: The second axis.
        columns: The third axis.

    Returns:
        Phase -> the inputs of the taps side by side, [n, blocks, made, taps * c].
    """
    return {phase: _columns_read(part, columns) for phase, part in _phases(image, rows, columns).items()}


def rows_read(image: Any, rows: WindowAxis, columns: WindowAxis) -> Iterator[Any]:
    """Yield the inputs of each kernel row's taps side by side, [n, made, made, taps * c].

    Args:
        image: An image returned by `fitted`.
        rows: The second axis.
        columns: The third axis.
    """
    bands = bands_read(image, rows, columns)
    for tap in range(rows.kernel):
        block, phase = rows.block_and_phase(tap)
        yield cut(bands[phase], [0, block, 0, 0], [-1, rows.outputs, -1, -1])


def _phases(image: Any, rows: WindowAxis, columns: WindowAxis) -> dict[int, Any]:
    """Return the rows of each phase that is read, [n, blocks, blocks, s * c].

    The columns of a block are side by side.
    """
    width = columns.stride * image.shape[-1]
    if rows.stride == 1:
        return {0: tf.reshape(image, [-1, rows.blocks, columns.blocks, width])}
    parts = tf.reshape(image, [-1, rows.blocks, rows.stride, columns.blocks, width])
    read = sorted({rows.block_and_phase(tap)[1] for tap in range(rows.kernel)})
    return {
        phase: tf.reshape(
            cut(parts, [0, 0, phase, 0, 0], [-1, -1, 1, -1, -1]),
            [-1, rows.blocks, columns.blocks, width],
        )
        for phase in read
    }


def _columns_read(part: Any, columns: WindowAxis) -> Any:
    channels = part.shape[-1] // columns.stride
    read = []
    for tap in range(columns.kernel):
        block, phase = columns.block_and_phase(tap)
        read.append(cut(part, [0, 0, block, phase * channels], [-1, -1, columns.outputs, channels]))
    return tf.concat(read, -1) if len(read) > 1 else read[0]


def scattered(gradients: Mapping[tuple[int, int], Any], rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return the gradient of an image [n, rows, columns, c] from one gradient per tap.

    Args:
        gradients: Row and column of a tap -> gradient [n, made, made, c].
        rows: The second axis.
        columns: The third axis.
    """
    bands: list[list[Any]] = [[None] * columns.stride for _ in range(rows.stride)]
    for (row, column), gradient in gradients.items():
        (down, phase), (right, column_phase) = rows.block_and_phase(row), columns.block_and_phase(column)
        placed = padded(gradient, [(down, rows.extent - down), (right, columns.extent - right)])
        band = bands[phase]
        band[column_phase] = placed if band[column_phase] is None else band[column_phase] + placed
    return _cropped(_interleaved(bands), rows, columns)


def _interleaved(bands: list[list[Any]]) -> Any:
    """Interleave images [n, h, w, c], given by row and column phase, into one [n, s * h, s' * w, c]."""
    first = next(part for band in bands for part in band if part is not None)
    _, height, width, channels = first.shape
    zeros = tf.zeros_like(first) if any(part is None for band in bands for part in band) else None
    filled = [[zeros if part is None else part for part in band] for band in bands]
    lines = [tf.concat(band, -1) if len(band) > 1 else band[0] for band in filled]
    image = tf.stack(lines, 2) if len(lines) > 1 else lines[0]
    return tf.reshape(image, [-1, height * len(bands), width * len(bands[0]), channels])


def _cropped(image: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return an image without padding, with zeros at positions that were not read."""
    more = [max(axis.before + axis.size - axis.padded, 0) for axis in (rows, columns)]
    image = padded(image, [(0, margin) for margin in more])
    if image.shape[1:3] == (rows.size, columns.size):
        return image
    return cut(image, [0, rows.before, columns.before, 0], [-1, rows.size, columns.size, -1])
