"""Shapes with a free batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

#: Stands for the batch size in products: a prime that is larger than any size.
_BATCH: Final = 2**61 - 1


@dataclass(frozen=True)
class BatchSize:
    """A size that is a multiple of the batch size."""

    times: int = 1


Size: TypeAlias = int | BatchSize
Shape: TypeAlias = tuple[Size, ...]


def count(shape: Sequence[Size]) -> int:
    """Return a number that equals the one of another shape exactly if both have equally many entries."""
    return prod(size if isinstance(size, int) else size.times * _BATCH for size in shape)


def blocks(old: Shape, new: Shape) -> Iterator[tuple[range, range]]:
    """Divide the axes of two shapes with equally many entries into the smallest blocks that correspond.

    An axis of size 1 belongs to the block before it, except for the first axes.
    """
    i = j = 0
    while i < len(old) or j < len(new):
        first, start = i, j
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while (left := count(old[first:i])) != (right := count(new[start:j])):
            if left < right:
                i += 1
            else:
                j += 1
        while i < len(old) and old[i] == 1:
            i += 1
        while j < len(new) and new[j] == 1:
            j += 1
        yield range(first, i), range(start, j)
