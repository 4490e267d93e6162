"""Comparison of a package with its original (paper 7)."""

import numpy as np

from executors.data import Dataset
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.wording import counted
from mistify_server.worker.packaging.conversion.result import Original
from mistify_server.worker.packaging.tflite.runner import Array, Runner

#: Number of compared examples, and the tolerance of float32 outputs relative to the largest.
COMPARED_EXAMPLES = 64
_TOLERANCE = 1e-4


def compare(
    original: Original, runner: Runner, data: Dataset, precision: Quantization, fixed: Runner | None = None
) -> None:
    """Check that a package computes the same as its original, for single examples and for a batch.

    Outputs in float32 must be equal. At other precisions, they must have the same shape and be finite; the
    package's accuracy shows the loss from the precision.

    Args:
        original: The network before conversion.
        runner: The package, or one of its branches.
        data: Examples, of which the first ones are compared.
        fixed: The same with fixed batch 1.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the outputs differ, or are not finite.
    """
    batch = runner.examples_at_once(COMPARED_EXAMPLES)
    examples = {name: array[:batch] for name, array in data.inputs.items()}
    expected = original(examples)
    runs = [(runner, batch), (runner, 1), *([(fixed, 1)] if fixed else [])]
    for run, count in runs:
        outputs = run({name: array[:count] for name, array in examples.items()})
        for name, output in expected.items():
            _require_equal(name, outputs[name], output[:count], precision)


def _require_equal(name: str, actual: Array, expected: Array, precision: Quantization) -> None:
    if actual.shape != expected.shape:
        raise _corrupt(f"output {name} has the shape {actual.shape}, its checkpoint's {expected.shape}")
    require_finite(name, actual, np.arange(len(actual)), expected)
    if precision is not Quantization.NONE:
        return
    difference = np.abs(actual - expected)
    tolerance = _TOLERANCE * max(1.0, float(np.abs(expected).max()))
    if not difference.max() <= tolerance:
        place = np.unravel_index(difference.argmax(), difference.shape)
        raise _corrupt(
            f"output {name} differs from its checkpoint's: {actual[place]:.6g} against {expected[place]:.6g} "
            f"for example {place[0]}; expected a difference of at most {tolerance:.0e}"
        )


def require_finite(name: str, output: Array, rows: Array, expected: Array | None = None) -> None:
    """Raise an error if an output is not finite.

    Args:
        name: Name of the output.
        output: [examples, ...].
        rows: Indices of the examples in their data, [examples].
        expected: The output of the network before conversion, if known.

    Raises:
        MistifyError: CORRUPT_PACKAGE, some outputs are not finite.
    """
    wrong = ~np.isfinite(output)
    if not wrong.any():
        return
    place = tuple(np.argwhere(wrong)[0])
    examples = int(wrong.reshape(len(wrong), -1).any(axis=1).sum())
    before = "" if expected is None else f", where its checkpoint's is {expected[place]:.6g}"
    raise _corrupt(
        f"output {name} is {output[place]} for example {rows[place[0]]}{before}, and not finite for "
        f"{examples} of {counted(len(output), 'example')}; expected finite numbers; look for inputs or "
        "weights that are too large"
    )


def _corrupt(reason: str) -> MistifyError:
    return MistifyError(ErrorCode.CORRUPT_PACKAGE, f"the package cannot be used: its {reason}")
