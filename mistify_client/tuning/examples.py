"""The data that a device tunes on, split into examples to learn from and examples to decide by."""

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

#: The most examples that are held out to decide when to stop.
MOST_HELD_OUT = 1_000


@dataclass(frozen=True)
class Split:
    """Examples, split into a training and a validation part.

    Attributes:
        examples: All of them.
        training: [count], rows of the examples to train on.
        validation: [count], rows of the held-out ones, which decide when to stop.
    """

    examples: Examples
    training: Array
    validation: Array

    @cached_property
    def held_out(self) -> Examples:
        """Return the examples that decide when to stop."""
        return self.examples.subset(self.validation)


def split(examples: Examples, share: float, batch_size: int) -> Split:
    """Hold out a share of the examples, at most `MOST_HELD_OUT`, always the same ones.

    Args:
        examples: All of them.
        share: Share of the examples to hold out, from 0 to 1.
        batch_size: Number of examples of a training step.

    Raises:
        MistifyError: INVALID_DATASET, fewer examples are left than a step takes.
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
        Examples whose labels have the shapes that the training takes; those of yes or no are integers.

    Raises:
        MistifyError: As for `read_arrays`; also for labels of yes or no that are fractions.
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
    """Return labels in the shape that the training takes, for an output of this kind and shape."""
    label = label_shape(kind, shape)
    return labels if -1 in label else labels.reshape(len(labels), *label)
