"""Models that are directories: SavedModels, and presets of keras_hub."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from executors.inspection.config import ClassPolicy, check_config, parse_config
from executors.inspection.errors import invalid, too_large
from executors.inspection.limits import Limits
from executors.inspection.weights import stored_weights

GRAPH = "saved_model.pb"
METADATA = "keras_metadata.pb"
CONFIG = "config.json"

NOT_ADAPTABLE = "can be quantized and packaged but whose architecture cannot be adapted"
_PRESET = "save it by save_to_preset(DIRECTORY)"


def is_graph(path: Path) -> bool:
    """Check whether a path is a SavedModel that Keras has not described."""
    return (path / GRAPH).is_file() and not (path / METADATA).exists()


def inspect_graph(path: Path, _policy: ClassPolicy) -> int:
    """Return the most weights that a SavedModel can hold, one per byte.

    Raises:
        MistifyError: INVALID_MODEL, it is incomplete.
    """
    if not (path / "variables" / "variables.index").is_file():
        raise invalid(path, "a SavedModel without variables/variables.index", fix="copy the whole directory")
    return _variable_bytes(path)


def inspect_saved_model(path: Path, policy: ClassPolicy) -> int:
    """Return the most weights that a SavedModel of Keras can hold, one per byte; read its configuration.

    Raises:
        MistifyError: INVALID_MODEL, its description is too large.
    """
    if (size := (path / METADATA).stat().st_size) > policy.limits.config_bytes:
        raise too_large(path, f"a {METADATA} of {size:,} bytes", policy.limits.config_bytes)
    return _variable_bytes(path)


def inspect_preset(path: Path, policy: ClassPolicy) -> int:
    """Return how many weights a preset of keras_hub holds.

    Raises:
        MistifyError: INVALID_MODEL, what makes it unfit to be loaded.
    """
    files = list(path.glob("*.h5"))
    if not files:
        raise invalid(
            path, f"a directory with {CONFIG} but no weights (*.h5)", "a preset of keras_hub", _PRESET
        )
    stored = sum(stored_weights(path, file, policy.limits) for file in files)
    for file in path.glob("*.json"):
        if (size := file.stat().st_size) > policy.limits.config_bytes:
            raise too_large(path, f"a {file.name} of {size:,} bytes", policy.limits.config_bytes)
        check_config(path, parse_config(path, file.read_bytes(), policy.limits), stored, policy)
    return stored


def check_tree(path: Path, limits: Limits) -> int:
    """Return the bytes of all files below a directory.

    Raises:
        MistifyError: INVALID_MODEL: anything but files and directories, or too much.
    """
    total = 0
    for count, entry in enumerate(_entries(path), 1):
        mode = entry.stat(follow_symlinks=False)
        if not (stat.S_ISREG(mode.st_mode) or stat.S_ISDIR(mode.st_mode)):
            raise invalid(path, f"{entry.name}, which is a link or a device", "files and directories alone")
        total += mode.st_size
        if count > limits.entries:
            raise too_large(path, f"a directory of more than {limits.entries:,} files", limits.entries)
        if total > limits.total_bytes:
            raise too_large(path, f"files of more than {limits.total_bytes:,} bytes", limits.total_bytes)
    return total


def _variable_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "variables").glob("variables.data-*"))


def _entries(path: Path) -> Iterator["os.DirEntry[str]"]:
    left = [str(path)]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
