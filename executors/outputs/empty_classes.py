"""Classes without examples in the training data."""

import numpy as np

from executors.data.dataset import Dataset
from executors.outputs.objectives import Categorical, objective_of
from executors.structure.signature import Signature
from mistify.config.data.dataset import ClassWeights
from mistify.parsing.validation import InvalidValue


def empty_classes(signature: Signature, data: Dataset) -> list[int]:
    """Return the classes of a classifier without examples in the training data; empty for other models."""
    if len(signature.outputs) > 1:
        return []
    (output,) = signature.outputs
    target = data.targets[output.name]
    if target.ndim > 1 or not isinstance(objective_of(output, target), Categorical):
        return []
    counts = np.bincount(target[target >= 0], minlength=output.shape[-1] or 0)
    return np.flatnonzero(counts == 0).tolist()


def check_balanced(signature: Signature, data: Dataset, weights: ClassWeights | None) -> None:
    """Check that all classes have examples if they are to be weighted equally.

    Args:
        data: Training data.
        weights: "balanced" for equal weights.

    Raises:
        InvalidValue: A class has no example.
    """
    empty = empty_classes(signature, data) if weights == "balanced" else []
    if empty:
        expected = f"training data with examples of all classes; there are none of {named(empty)}"
        raise InvalidValue(weights, expected, "add some, or give a list of weights")


def named(classes: list[int]) -> str:
    """Describe some classes: the number of the first, and how many more there are."""
    more = f" and of {len(classes) - 1} more" if len(classes) > 1 else ""
    return f"class {classes[0]}{more}"
