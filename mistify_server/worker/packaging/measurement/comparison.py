"""The comparison of a package with what it was converted from (paper 7)."""

import sys

import numpy as np

from executors.data import Dataset
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify_server.worker.packaging.conversion.result import Original
from mistify_server.worker.packaging.tflite.runner import Array, Runner

#: Examples that are compared, and how far float32 outputs may differ, as a share of the largest.
COMPARED_EXAMPLES = 64
_TOLERANCE = 1e-4


def compare(
    original: Original, runner: Runner, data: Dataset, precision: Quantization, fixed: Runner | None = None
) -> None:
    """Check that a package computes what its original computes, for single examples and for a batch.

    Outputs in float32 have to be equal. At another precision they have to be of one shape and finite:
    how much it costs is what the package's accuracy shows.

    Args:
        original: The network before its conversion.
        runner: The package, or one of its branches.
        data: Of which the first examples are compared.
        precision: Of the package.
        fixed: The same for single examples only.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the outputs differ.
    """
    batch = runner.examples_at_once(COMPARED_EXAMPLES)
    examples = {name: array[:batch] for name, array in data.inputs.items()}
    expected = original(examples)
    runs = [(runner, batch), (runner, 1), *([(fixed, 1)] if fixed else [])]
    for run, count in runs:
        outputs = run({name: array[:count] for name, array in examples.items()})
        for name, output in expected.items():
            _require_equal(outputs[name], output[:count], precision)


def _require_equal(actual: Array, expected: Array, precision: Quantization) -> None:
    same_shape = actual.shape == expected.shape
    difference = float(np.abs(actual - expected).max()) if same_shape else float("inf")
    tolerance = _TOLERANCE * max(1.0, float(np.abs(expected).max()))
    if precision is not Quantization.NONE:
        tolerance = sys.float_info.max
    if not difference <= tolerance:
        raise MistifyError(
            ErrorCode.CORRUPT_PACKAGE,
            f"the package's outputs {actual.shape} differ from its checkpoint's {expected.shape} by "
            f"{difference:.2g}; expected {tolerance:.0e} at most",
        )
