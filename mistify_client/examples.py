"""The data of a device: arrays named like inputs and outputs, in an `.npz` file."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod
from pathlib import Path
from zipfile import BadZipFile, is_zipfile

import numpy as np

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.manifest import TensorInfo
from mistify.package.training import OutputEncoding
from mistify.wording import counted
from mistify_client.runtime.inputs import Array, checked

#: Array names for an only input and an only output.
_ALIASES = "x", "y"

_KINDS_OF_CLASSES = OutputEncoding.SOFTMAX, OutputEncoding.LOGITS

#: Kinds of outputs with yes-or-no labels.
YES_OR_NO = OutputEncoding.SIGMOID, OutputEncoding.LOGIT

#: Errors raised when a file is damaged or contains no arrays.
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    TypeError,
    AttributeError,
    RuntimeError,
    BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Examples:
    """Inputs and targets by name, [examples, ...]."""

    inputs: Mapping[str, Array]
    targets: Mapping[str, Array]

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of names, types, shapes and contents."""
        digest = sha256()
        for name, array in (*self.inputs.items(), *self.targets.items()):
            digest.update(f"{name} {array.dtype} {array.shape};".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def subset(self, rows: Array) -> "Examples":
        """Return a subset of the examples.

        Args:
            rows: [count], indices of examples.
        """
        return Examples(
            {name: array[rows] for name, array in self.inputs.items()},
            {name: array[rows] for name, array in self.targets.items()},
        )

    def chunks(self, size: int) -> Iterator["Examples"]:
        """Yield all examples in order, in chunks of this size; the last one may be smaller."""
        for start in range(0, len(self), size):
            yield self.subset(np.arange(start, min(start + size, len(self))))


def read_arrays(
    path: Path,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    kinds: Mapping[str, OutputEncoding],
    *,
    labels_needed: bool = True,
) -> Examples:
    """Read examples from an `.npz` file.

    Args:
        path: An `.npz` file. Its arrays, [examples, ...], are named like inputs and outputs; an only input
            may be named `x`, an only output `y`.
        kinds: Encodings of the outputs that have labels.
        labels_needed: Reject files without an array for each of these outputs; otherwise a file may have no
            labels at all.

    Raises:
        MistifyError: INVALID_DATASET, with every problem: arrays that are missing or do not fit the network.
    """
    arrays = read_npz(path)
    values, missing_inputs = _named(arrays, [info.name for info in inputs], _ALIASES[0])
    targets, missing_targets = _named(arrays, list(kinds), _ALIASES[1])
    names, unknown = ", ".join(arrays) or "none", list[str]()
    if not targets and not labels_needed:
        missing_targets = []
        unknown = [name for name in arrays if name not in values and name != _ALIASES[0]]
    problems = (
        [
            Problem(f"{path}: {name}", "nothing", f"an array [examples, ...]; there are {names}", fix)
            for name, fix in ((name, "add it, or rename one") for name in (*missing_inputs, *missing_targets))
        ]
        + [
            Problem(
                f"{path}: {name}",
                "an array that is neither an input nor labels",
                f"labels to be named like the outputs: {', '.join(kinds) or 'none can have any'}",
                "rename it, or leave it out",
            )
            for name in unknown
        ]
        + [
            Problem(f"{path}: {name}", "no example", "at least one", "add some")
            for name, array in (*values.items(), *targets.items())
            if array.ndim and not len(array)
        ]
    )
    if not problems:
        values = checked_inputs(values, inputs, path)
        labelled = {name: kinds[name] for name in targets}
        problems = list(_problems(Examples(values, targets), outputs, labelled, path))
    if problems:
        raise invalid_data(*problems)
    return Examples(values, targets)


def checked_inputs(arrays: Mapping[str, Array], inputs: Sequence[TensorInfo], path: Path) -> dict[str, Array]:
    """Check a file's arrays against the inputs of a network, and return them unchanged.

    Args:
        arrays: Input name -> [examples, ...].
        path: The file, for errors.

    Raises:
        MistifyError: INVALID_DATASET, with every mismatch.
    """
    try:
        return checked(inputs, (), arrays)
    except MistifyError as error:
        raise MistifyError(error.code, f"{path} does not fit the network", error.problems) from error


def label_shape(kind: OutputEncoding, shape: Sequence[int]) -> Sequence[int]:
    """Return the shape of an output's labels for one example.

    Args:
        kind: Encoding of the output's values.
        shape: Shape of the output, batch dimension first; -1 for a free size.
    """
    return shape[1:-1] if kind in _KINDS_OF_CLASSES else shape[1:]


def with_whole_answers(examples: Examples, kinds: Mapping[str, OutputEncoding]) -> Examples:
    """Return examples with yes-or-no labels as integers, except for outputs with fractional labels.

    Args:
        examples: Examples from `read_arrays`.
        kinds: Encodings of the outputs that have labels.
    """
    whole = {
        name: labels.astype(np.int64)
        for name, labels in examples.targets.items()
        if kinds[name] in YES_OR_NO and not (labels % 1).any()
    }
    return Examples(examples.inputs, {**examples.targets, **whole})


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of an `.npz` file by name.

    Raises:
        MistifyError: INVALID_DATASET, it is not an `.npz` file.
    """
    expected, fix = "an .npz file with arrays", "write it with numpy.savez"
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            with loaded as arrays:
                return dict(arrays)
    except FileNotFoundError as error:
        raise invalid_data(Problem(str(path), "no such file", expected, "check the path")) from error
    except _UNREADABLE as error:
        raise invalid_data(Problem(str(path), _reason(error, path), expected, fix)) from error
    raise invalid_data(Problem(str(path), "a single array without a name", expected, fix))


def _reason(error: Exception, path: Path) -> str:
    """Return why a file has no arrays; NumPy takes files of most other formats for pickled objects."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if not is_zipfile(path):
        return "a file of another format"
    return str(error).partition(".")[0]  # the rest is advice for those who trust the file


def _named(arrays: Mapping[str, Array], names: list[str], alias: str) -> tuple[dict[str, Array], list[str]]:
    """Return the arrays with these names, and the names without an array."""
    stored = {name: alias if len(names) == 1 and name not in arrays else name for name in names}
    present = {name: arrays[stored[name]] for name in names if stored[name] in arrays}
    return present, [name for name in names if name not in present]


def _problems(
    examples: Examples, outputs: Sequence[TensorInfo], kinds: Mapping[str, OutputEncoding], path: Path
) -> Iterator[Problem]:
    shapes = {info.name: info.shape for info in outputs}
    for name, array in (*examples.inputs.items(), *examples.targets.items()):
        if not array.ndim:
            yield Problem(
                f"{path}: {name}",
                "a single value",
                "an array [examples, ...]",
                "give one value for each example",
            )
        elif len(array) != len(examples):
            yield Problem(
                f"{path}: {name}",
                counted(len(array), "example"),
                f"{len(examples)}",
                "give every array the same number",
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            yield Problem(f"{path}: {name}", "NaN or infinite numbers", "finite ones", "leave them out")
    for name, kind in kinds.items():
        yield from label_problems(f"{path}: {name}", examples.targets[name], kind, shapes[name])


def label_problems(place: str, array: Array, kind: OutputEncoding, shape: Sequence[int]) -> Iterator[Problem]:
    """Yield the problems of labels.

    Args:
        place: Name of the array in errors.
        array: The labels, [examples, ...].
        kind: Encoding of the output's values.
        shape: Shape of the output, batch dimension first; -1 for a free size.
    """
    of_classes = kind in _KINDS_OF_CLASSES
    label = label_shape(kind, shape)
    if array.dtype.kind not in ("iub" if of_classes else "iubf"):
        expected = "integers" if of_classes else "numbers"
        value = f"classes as {array.dtype}" if of_classes else f"labels as {array.dtype}"
        is_share_of_each = of_classes and array.ndim and array.size == len(array) * prod(shape[1:])
        by = ".argmax(-1)" if is_share_of_each else ".astype(numpy.int64)"
        yield Problem(place, value, expected, f"convert them, for example with {by}")
    elif array.ndim and -1 not in label and array.size != len(array) * prod(label):
        fix = "give the number of each class: .argmax(-1)" if of_classes else "give one for each value"
        yield Problem(place, f"the shape {[*array.shape]}", f"{[len(array), *label]}", fix)
    elif array.size and kind is not OutputEncoding.FIGURES:
        lowest, highest = array.min(), array.max()
        most = shape[-1] - 1 if of_classes else 1
        if lowest < -1 or highest > most:
            value = f"classes from {lowest} to {highest}"
            yield Problem(place, value, f"0 to {most}, or -1", "correct them")


def invalid_data(*problems: Problem) -> MistifyError:
    """Return the error for unusable data."""
    return MistifyError(ErrorCode.INVALID_DATASET, "the data cannot be used", problems)
