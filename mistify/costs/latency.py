"""A latency model of operators on a device, fitted to measurements (paper 4.1).

The time of an operator's routine is a sum of terms: a start, multiply-adds, elements read and written, and
so on. Matrix products are computed in tiles of rows and columns; a partly filled tile costs as much as a
full one, so terms count tiles. The tile size depends on the processor; some processors use narrower tiles
for few columns.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from mistify.costs.operators import Operation, OperatorKind
from mistify.parsing.validation import Settings

Terms: TypeAlias = tuple[float, ...]


_COPIES: Final = frozenset({OperatorKind.COPY, OperatorKind.RESHAPE, OperatorKind.FLATTEN})


class Tile(NamedTuple):
    """The block of a matrix product that is computed at once.

    Attributes:
        rows: Output positions.
        columns: Output channels.
        depth: Input channels.
        narrow: Width of the tile for operators with at most this many output channels; 0 if there is none.
    """

    rows: int = 1
    columns: int = 1
    depth: int = 1
    narrow: int = 0

    def columns_for(self, channels: int) -> int:
        """Return the width of the tile for an operator with the given number of output channels."""
        return self.narrow if 0 < channels <= self.narrow else self.columns


class RoutineModel(Settings):
    """A routine: its tile, and the microseconds per unit of each term."""

    tile: Tile
    figures: tuple[float, ...]

    def microseconds(self, operation: Operation) -> float:
        """Return the time of an operation in this routine, in microseconds."""
        terms = terms_of(operation, self.tile)
        return sum(figure * term for figure, term in zip(self.figures, terms, strict=True))


class LatencyModel(Settings):
    """The latency model of a device at one setting.

    Attributes:
        start: Minimum time of an inference, in microseconds.
        routines: By name.
        between: Microseconds per unit of `terms_between`.
    """

    start: float
    routines: dict[str, RoutineModel]
    between: tuple[float, ...] = (0.0, 0.0)

    def latency_ms(self, operations: Sequence[Operation]) -> float:
        """Return the time of an inference with these operations, in milliseconds."""
        passed = zip(self.between, terms_between(operations), strict=True)
        taken = map(self.microseconds, operations)
        return (self.start + sum(taken) + sum(figure * term for figure, term in passed)) / 1e3

    def microseconds(self, operation: Operation) -> float:
        """Return the time of an isolated operation, in microseconds."""
        return self.routines[routine_of(operation)].microseconds(operation)


def terms_between(operations: Sequence[Operation]) -> Terms:
    """Return the terms between consecutive operators: the number of successors, and the elements they read.

    An isolated operator finds its input where the previous inference left it; in a network, another thread
    has just written part of it, which is in another core's cache. Two consecutive copy operators are not
    counted: they run on one thread.
    """
    following = [
        operation
        for before, operation in pairwise(operations)
        if before.kind not in _COPIES or operation.kind not in _COPIES
    ]
    return float(len(following)), float(sum(operation.times * operation.read for operation in following))


def routine_of(operation: Operation) -> str:
    """Return the routine of an operation; products of one position and without a window have their own."""
    match operation:
        case Operation(kind=OperatorKind.CONVOLUTION, kernel=1, stride=1):
            return "convolution-1x1"
        case Operation(kind=OperatorKind.DENSE, positions=1):
            return "dense-vector"
        case _:
            return operation.kind.value


def is_product(routine: str) -> bool:
    """Check whether a routine works in tiles of rows and columns."""
    return _TERMS.get(routine) is _product


def is_tiled(routine: str) -> bool:
    """Check whether a routine works in tiles."""
    return routine in _TERMS


def terms_of(operation: Operation, tile: Tile) -> Terms:
    """Return the counts that determine the time of an operation in its routine, over all its runs."""
    terms = _TERMS.get(routine_of(operation), _pass)(operation, tile)
    return tuple(operation.times * term for term in terms)


def _product(operation: Operation, tile: Tile) -> Terms:
    """Return the terms of a matrix product: positions x output channels, over a window of inputs."""
    width = tile.columns_for(operation.c_out)
    columns = _tiles(operation.c_out, width)
    wide = _filled(operation.c_out, 2 * width)
    rows = _tiles(operation.positions, tile.rows)
    summed = operation.kernel * _filled(operation.c_in, tile.depth)
    return (
        1.0,
        rows * tile.rows * columns * width * summed,
        operation.positions * columns * width * summed,
        operation.positions * wide * summed,
        rows * columns,
        rows * columns * operation.kernel,
        rows * operation.kernel,
        operation.positions * operation.kernel,
        operation.written,
        operation.read,
        columns * width * summed,
    )


def _depthwise(operation: Operation, tile: Tile) -> Terms:
    """Return the terms of a window over each channel."""
    columns = _tiles(operation.c_out, tile.columns)
    filled, wide = columns * tile.columns, _filled(operation.c_out, 2 * tile.columns)
    return (
        1.0,
        operation.positions * filled * operation.kernel,
        operation.positions * wide * operation.kernel,
        operation.positions * filled,
        operation.positions * columns,
        operation.positions,
        operation.positions * operation.kernel,
        operation.read,
        operation.written,
        filled * operation.kernel,
    )


def _pass(operation: Operation, tile: Tile) -> Terms:
    """Return the terms of a pass over elements."""
    return (
        1.0,
        operation.positions,
        operation.written,
        operation.read,
        operation.positions * operation.kernel,
        operation.written * operation.kernel,
        operation.positions * _filled(operation.c_out, tile.columns),
    )


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def _filled(size: int, tile: int) -> int:
    """Round a size up to whole tiles."""
    return _tiles(size, tile) * tile


_TERMS: Mapping[str, Callable[[Operation, Tile], Terms]] = {
    "convolution-1x1": _product,
    OperatorKind.CONVOLUTION.value: _product,
    "dense-vector": _product,
    OperatorKind.DENSE.value: _product,
    OperatorKind.PRODUCT.value: _product,
    OperatorKind.DEPTHWISE.value: _depthwise,
}
