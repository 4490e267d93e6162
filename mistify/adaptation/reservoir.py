"""A reservoir of recent examples, balanced by predicted class: a stream may show one class at a time."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Reservoir"]

Array = npt.NDArray[Any]

#: The default number of examples, and those of each class at least.
_CAPACITY: Final = 80
_LEAST_OF_CLASS: Final = 2

_HIGHEST_BYTE: Final = 255


class Reservoir:
    """Recent examples, at most as many of each predicted class as the others may have.

    Floats are kept as bytes if they are whole numbers up to 255, as pixels are, and else in half precision:
    statistics need no more.

    Args:
        classes: The number of classes.
        capacity: The largest number of examples.
    """

    def __init__(self, classes: int, capacity: int = _CAPACITY) -> None:
        self._of_class = max(_LEAST_OF_CLASS, capacity // classes)
        self._capacity = capacity
        self._examples: list[tuple[int, dict[str, Array], dict[str, np.dtype[Any]]]] = []

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._examples)

    @property
    def bytes(self) -> int:
        """The size of the examples in memory."""
        return sum(array.nbytes for _, arrays, _ in self._examples for array in arrays.values())

    def add(self, example: Mapping[str, Array], label: int) -> None:
        """Add an example, in place of the oldest one of its class, or of the most frequent class, if full.

        Args:
            example: Input -> array, without a batch axis.
            label: The predicted class.
        """
        kept = {name: _narrowed(array) for name, array in example.items()}
        self._examples.append((label, kept, {name: array.dtype for name, array in example.items()}))
        counts = Counter(one for one, _, _ in self._examples)
        if counts[label] > self._of_class:
            self._drop(label)
        elif len(self._examples) > self._capacity:
            self._drop(counts.most_common(1)[0][0])

    def drawn(self, count: int, rng: np.random.Generator) -> list[dict[str, Array]]:
        """Return different examples at random, each [1, ...] by input."""
        chosen = rng.permutation(len(self._examples))[:count]
        return [
            {name: array.astype(dtypes[name])[None] for name, array in arrays.items()}
            for _, arrays, dtypes in (self._examples[number] for number in chosen)
        ]

    def _drop(self, label: int) -> None:
        del self._examples[next(at for at, (one, _, _) in enumerate(self._examples) if one == label)]


def _narrowed(array: Array) -> Array:
    """Return a copy with fewer bytes for each number, if it is made of floats."""
    if array.dtype != np.float32:
        return array.copy()
    as_bytes = np.clip(array, 0, _HIGHEST_BYTE).astype(np.uint8)
    if np.array_equal(as_bytes, array):
        return as_bytes
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    return halves if np.isfinite(halves).all() else array.copy()
