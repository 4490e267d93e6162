"""Examples to train on and to measure with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from executors.data.storage import Array, gathered


@dataclass(frozen=True)
class Dataset:
    """Examples and what a model shall say of them.

    Attributes:
        inputs: Name of the model's input -> [examples, ...], in the model's order; integers may stand where
            the model takes floats.
        targets: Name of the model's output -> [examples, ...], in the model's order: classes are int64
            (-1 where a position is to be ignored), figures float32.
    """

    inputs: Mapping[str, Array]
    targets: Mapping[str, Array]

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def subset(self, indices: npt.NDArray[np.int64]) -> "Dataset":
        """Return the examples at these indices, copied."""
        return Dataset(
            {name: gathered(array, indices) for name, array in self.inputs.items()},
            {name: gathered(array, indices) for name, array in self.targets.items()},
        )


def split(data: Dataset, share: float, seed: int = 0) -> Sequence[Dataset]:
    """Return two parts of the data, the second with `share` of the examples.

    Args:
        data: Examples.
        share: Part of the examples that the second part gets, 0 to 1; it has one at least.
        seed: Where the choice of the examples starts from.
    """
    order = np.random.default_rng(seed).permutation(len(data))
    held_out = max(1, round(share * len(data)))
    return data.subset(np.sort(order[held_out:])), data.subset(np.sort(order[:held_out]))
