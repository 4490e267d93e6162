"""The check that a package can take the place of another one in an app."""

from collections.abc import Iterator
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.manifest import MANIFEST, Manifest, TensorInfo


def check_interchangeable(shipped: Manifest, new: Manifest, directory: Path) -> None:
    """Check that a package has the inputs, outputs and classes of the shipped one.

    Classes may get other names, but the name of one class must not become that of another one.

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
    if not problems:
        problems = [
            Problem(f"{directory / MANIFEST}: {place}", actual, expected, "install another one")
            for place, actual, expected in _other_classes(shipped, new)
        ]
    if problems:
        message = f"{directory} cannot take the place of the package"
        raise MistifyError(ErrorCode.INVALID_MODEL, message, problems)


def _other_classes(shipped: Manifest, new: Manifest) -> Iterator[tuple[str, str, str]]:
    """Yield where classes are others: the place, and the classes of the new and of the shipped package."""
    if shipped.task and new.task and set(shipped.task.classes) != set(new.task.classes):
        yield "task", str(new.task), str(shipped.task)
        return
    for output, names in shipped.labels.items():
        others = new.labels.get(output, ())
        kept = {name for name in names if names.count(name) == others.count(name) == 1}
        if any(names.index(name) != others.index(name) for name in kept):
            yield f"labels.{output}", ", ".join(others), ", ".join(names)


def _signature(tensors: tuple[TensorInfo, ...]) -> str:
    """Format names, types and shapes; not the scales of integers, which callers read from the model."""
    return ", ".join(f"{info.name} {info.dtype}{list(info.shape)}" for info in tensors)
