"""The data for tuning on a device, split into a training and a validation set."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mistify.errors import Problem
from mistify.package.manifest import Manifest
from mistify.package.training import OutputEncoding, Training
from mistify_client.examples import (
    YES_OR_NO,
    Examples,
    invalid_data,
    label_shape,
    read_arrays,
    with_whole_answers,
)
from mistify_client.runtime.inputs import Array

#: Maximum number of held-out examples.
MOST_HELD_OUT = 1_000


@dataclass(frozen=True)
class Split:
    """Examples, split into a training and a validation part.

    Attributes:
        training: [count], rows of the training examples.
        validation: [count], rows of the held-out examples, which decide when to stop.
    """

    examples: Examples
    training: Array
    validation: Array

    @cached_property
    def held_out(self) -> Examples:
        """The held-out examples, which decide when to stop."""
        return self.examples.subset(self.validation)


def split(examples: Examples, share: float, batch_size: int) -> Split:
    """Hold out a share of the examples, at most `MOST_HELD_OUT`, always the same ones.

    Args:
        share: Share of the examples to hold out, from 0 to 1.
        batch_size: Number of examples per training step.

    Raises:
        MistifyError: INVALID_DATASET, fewer examples remain than a step needs.
    """
    rows = np.random.default_rng(0).permutation(len(examples))
    held_out = min(max(1, round(share * len(rows))), MOST_HELD_OUT)
    if len(rows) - held_out < batch_size:
        least = f"{batch_size} for a step, and {held_out} to decide when to stop"
        raise invalid_data(Problem("examples", f"{len(rows)}", least, "gather more"))
    return Split(examples, np.sort(rows[held_out:]), np.sort(rows[:held_out]))


def read_examples(path: Path, manifest: Manifest, training: Training) -> Examples:
    """Read labelled examples for a package from an `.npz` file.

    Args:
        path: A file for `read_arrays`.

    Returns:
        Examples with labels in the shapes for training; yes-or-no labels are integers.

    Raises:
        MistifyError: INVALID_DATASET, with every problem: arrays that are missing or do not fit the network,
            or fractions as yes-or-no labels.
    """
    kinds = training.kinds
    examples = with_whole_answers(read_arrays(path, manifest.inputs, manifest.outputs, kinds), kinds)
    shapes = {info.name: info.shape for info in manifest.outputs}
    problems = [
        Problem(f"{path}: {name}", "fractions", "0 or 1, or -1", "round them")
        for name, labels in examples.targets.items()
        if kinds[name] in YES_OR_NO and labels.dtype.kind == "f"
    ]
    if problems:
        raise invalid_data(*problems)
    targets = {
        name: _as_trained(labels, kinds[name], shapes[name]) for name, labels in examples.targets.items()
    }
    return Examples(examples.inputs, targets)


def _as_trained(labels: Array, kind: OutputEncoding, shape: Sequence[int]) -> Array:
    """Return labels in the shape for training, for an output of this kind and shape."""
    label = label_shape(kind, shape)
    return labels if -1 in label else labels.reshape(len(labels), *label)
