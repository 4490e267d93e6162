"""The check that a package can take the place of another one in an app."""

from pathlib import Path

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.manifest import MANIFEST, Manifest, TensorInfo


def check_interchangeable(shipped: Manifest, new: Manifest, directory: Path) -> None:
    """Check that a package has the inputs and outputs of the shipped one.

    Args:
        shipped: The manifest of the shipped package.
        new: The manifest of the package that replaces it.
        directory: The directory of the new package.

    Raises:
        MistifyError: INVALID_MODEL, it has different ones.
    """
    sides = (("inputs", shipped.inputs, new.inputs), ("outputs", shipped.outputs, new.outputs))
    problems = [
        Problem(
            f"{directory / MANIFEST}: {side}", _signature(actual), _signature(expected), "install another one"
        )
        for side, expected, actual in sides
        if _signature(actual) != _signature(expected)
    ]
    if problems:
        message = f"{directory} cannot take the place of the package"
        raise MistifyError(ErrorCode.INVALID_MODEL, message, problems)


def _signature(tensors: tuple[TensorInfo, ...]) -> str:
    """Format names, types and shapes; not the scales of integers, which callers read from the model."""
    return ", ".join(f"{info.name} {info.dtype}{list(info.shape)}" for info in tensors)
