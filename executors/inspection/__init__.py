"""Checks of a source model before any part of it is loaded; need no TensorFlow.

An accepted file may still not be a model: Keras finds that out, under memory and time limits
(`executors.sources`). Refused files would run code, or use far more memory than their size.
"""

import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from executors.inspection.archive import inspect_archive
from executors.inspection.config import ClassPolicy, Registered, check_config, parse_config
from executors.inspection.directories import (
    CONFIG,
    GRAPH,
    check_tree,
    inspect_graph,
    inspect_preset,
    inspect_saved_model,
    is_graph,
)
from executors.inspection.errors import SAVE, invalid, too_large
from executors.inspection.limits import LIMITS, Limits
from executors.inspection.onnx_file import inspect_onnx, is_onnx
from executors.inspection.weights import model_config, stored_weights
from mistify.config.files import ONNX

__all__ = ["ClassPolicy", "Inspected", "Limits", "SourceKind", "check_config", "inspect_source"]

_KINDS = "one of .keras, .h5, .hdf5, .onnx, a SavedModel directory, or a keras_hub preset"


class SourceKind(Enum):
    """The kinds of source models in files."""

    KERAS = "keras"
    HDF5 = "hdf5"
    SAVED_MODEL = "saved_model"
    GRAPH = "graph"
    PRESET = "preset"
    ONNX = "onnx"


#: Suffix of a file -> its kind.
_FILES = {
    ".keras": SourceKind.KERAS,
    ".h5": SourceKind.HDF5,
    ".hdf5": SourceKind.HDF5,
    ONNX: SourceKind.ONNX,
}


@dataclass(frozen=True)
class Inspected:
    """Facts about a source model that are known before it is loaded.

    Attributes:
        kind: The format, which determines the loader.
        size: Bytes of all its files.
        weights: An upper bound on the number of weights stored in them.
    """

    kind: SourceKind
    size: int
    weights: int


def inspect_source(
    path: Path, registered: Registered = lambda name: False, limits: Limits = LIMITS
) -> Inspected:
    """Check a model that is a file or a directory, without loading it.

    Args:
        path: A file or a directory.
        registered: Whether a foreign class registered under this name is allowed.
        limits: Limits on the size of its parts.

    Raises:
        MistifyError: INVALID_MODEL if it is not a model, contains Python code, foreign classes or links,
            exceeds the limits, or declares more than it stores.
    """
    policy = ClassPolicy(limits, registered)
    kind = _kind(path)
    size = check_tree(path, limits) if path.is_dir() else path.stat().st_size
    if size > limits.total_bytes:
        raise too_large(path, f"a file of {size:,} bytes", limits.total_bytes)
    return Inspected(kind, size, _INSPECTORS[kind](path, policy))


def _inspect_hdf5(path: Path, policy: ClassPolicy) -> int:
    stored = stored_weights(path, path, policy.limits)
    text = model_config(path)
    if text is None:
        raise invalid(path, "an HDF5 file without a model, or with only weights")
    check_config(path, parse_config(path, text, policy.limits), stored, policy)
    return stored


_INSPECTORS: dict[SourceKind, Callable[[Path, ClassPolicy], int]] = {
    SourceKind.KERAS: inspect_archive,
    SourceKind.HDF5: _inspect_hdf5,
    SourceKind.SAVED_MODEL: inspect_saved_model,
    SourceKind.GRAPH: inspect_graph,
    SourceKind.PRESET: inspect_preset,
    SourceKind.ONNX: inspect_onnx,
}


def _kind(path: Path) -> SourceKind:
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise invalid(path, f"no file {path.name}", _KINDS) from error
    if stat.S_ISDIR(mode):
        return _kind_of_directory(path)
    if not stat.S_ISREG(mode):
        raise invalid(path, "a link or a device", "a file or a directory", "give the file itself")
    if path.suffix not in _FILES:
        raise invalid(path, f"a file named {path.name}", _KINDS, _fix(path))
    if path.stat().st_size == 0:
        raise invalid(path, "an empty file")
    return _FILES[path.suffix]


def _fix(path: Path) -> str:
    if path.suffix == ".py":
        return f'name its function as well, "{path.name}:FUNCTION"'
    if path.suffix in (".pt", ".pth"):
        return (
            f'name a function that returns the PyTorch network, "FILE.py:FUNCTION?weights={path.name}" '
            "(docs/pytorch.md), or export it to ONNX"
        )
    return SAVE


def _kind_of_directory(path: Path) -> SourceKind:
    if (path / GRAPH).is_file():
        return SourceKind.GRAPH if is_graph(path) else SourceKind.SAVED_MODEL
    if is_onnx(path):
        return SourceKind.ONNX
    if (path / CONFIG).is_file():
        return SourceKind.PRESET
    raise invalid(path, f"a directory without {GRAPH} and without {CONFIG}", _KINDS, "give the file itself")
