"""Representative examples: training data for calibrating the activations of integer packages."""

from collections.abc import Iterator, Mapping

import keras
import numpy as np
import numpy.typing as npt

from executors.data import Dataset

#: Maximum number of calibration examples.
REPRESENTATIVE_EXAMPLES = 300

#: Input name -> array [examples, ...].
Examples = Mapping[str, npt.NDArray[np.generic]]
#: Batches of one example, in the form that the converter needs.
Rows = Iterator[dict[str, npt.NDArray[np.generic]]]
#: The same, each with its signature.
SignatureRows = Iterator[tuple[str, dict[str, npt.NDArray[np.generic]]]]


def representative(train: Dataset) -> Dataset:
    """Return a random sample of at most `REPRESENTATIVE_EXAMPLES` training examples: files may be sorted."""
    return train.subset(np.random.default_rng(0).permutation(len(train))[:REPRESENTATIVE_EXAMPLES])


def typed(examples: Examples, model: keras.Model) -> Examples:
    """Return the examples converted to the types of a model's inputs."""
    return {tensor.name: examples[tensor.name].astype(tensor.dtype) for tensor in model.inputs}


def one_by_one(examples: Examples) -> Rows:
    """Yield the first `REPRESENTATIVE_EXAMPLES` examples as batches of one."""
    count = min(REPRESENTATIVE_EXAMPLES, *(len(array) for array in examples.values()))
    for row in range(count):
        yield {name: array[row : row + 1] for name, array in examples.items()}
