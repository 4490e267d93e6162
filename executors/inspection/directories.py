"""Models that are directories: SavedModels and keras_hub presets."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from executors.inspection.config import ClassPolicy, check_config, parse_config
from executors.inspection.errors import invalid, too_large
from executors.inspection.limits import Limits
from executors.inspection.weights import stored_weights

GRAPH = "saved_model.pb"
METADATA = "keras_metadata.pb"
CONFIG = "config.json"

NOT_ADAPTABLE = "can be quantized and packaged but whose architecture cannot be adapted"

#: The file that lists a preset's weight files, if there are several.
_INDEX = "model.weights.json"

_KERAS_HUB = "a keras_hub preset"
_PRESET = "save it with save_to_preset(DIRECTORY)"


def is_graph(path: Path) -> bool:
    """Check whether a path is a SavedModel without Keras metadata."""
    return (path / GRAPH).is_file() and not (path / METADATA).exists()


def inspect_graph(path: Path, _policy: ClassPolicy) -> int:
    """Return an upper bound on the number of weights in a SavedModel: one per byte.

    Raises:
        MistifyError: INVALID_MODEL if it is incomplete.
    """
    if not (path / "variables" / "variables.index").is_file():
        raise invalid(path, "a SavedModel without variables/variables.index", fix="copy the whole directory")
    return _variable_bytes(path)


def inspect_saved_model(path: Path, policy: ClassPolicy) -> int:
    """Check the metadata of a Keras SavedModel; return an upper bound on its weights: one per byte.

    Raises:
        MistifyError: INVALID_MODEL if its metadata are too large.
    """
    if (size := (path / METADATA).stat().st_size) > policy.limits.config_bytes:
        raise too_large(path, f"a {METADATA} of {size:,} bytes", policy.limits.config_bytes)
    return _variable_bytes(path)


def inspect_preset(path: Path, policy: ClassPolicy) -> int:
    """Return the number of weights in a keras_hub preset.

    Raises:
        MistifyError: INVALID_MODEL if the preset is not safe to load.
    """
    files = list(path.glob("*.h5"))
    if not files:
        raise invalid(path, f"a directory with {CONFIG} but no weights (*.h5)", _KERAS_HUB, _PRESET)
    stored = sum(stored_weights(path, file, policy.limits) for file in files)
    configs = {file.name: _json_file(path, file, policy.limits) for file in path.glob("*.json")}
    _check_library(path, configs[CONFIG])
    if _INDEX in configs:
        _check_index(path, configs[_INDEX], [file.name for file in files])
    for config in configs.values():
        check_config(path, config, stored, policy, unread=())
    return stored


def _json_file(path: Path, file: Path, limits: Limits) -> dict[str, Any]:
    if (size := file.stat().st_size) > limits.config_bytes:
        raise too_large(path, f"a {file.name} of {size:,} bytes", limits.config_bytes)
    return parse_config(path, file.read_bytes(), limits)


def _check_library(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse preset formats of other libraries, in which file names may point anywhere."""
    if "registered_name" not in config:
        raise invalid(path, "a preset of another library", _KERAS_HUB, _PRESET)
    for file in path.glob("*.safetensors*"):
        raise invalid(path, f"a preset with {file.name}", "weights in *.h5 files", _PRESET)


def _check_index(path: Path, index: Mapping[str, Any], files: Sequence[str]) -> None:
    """Refuse an index that names anything other than weight files in the directory."""
    places = index.get("weight_map")
    for place in places.values() if isinstance(places, dict) else [places]:
        for name in place if isinstance(place, list) else [place]:
            if name not in files:
                actual = f"an {_INDEX} with weights in {str(name)[:100]!r}"
                raise invalid(path, actual, "weights in *.h5 files of the directory", _PRESET)


def check_tree(path: Path, limits: Limits) -> int:
    """Return the total size of all files below a directory, in bytes.

    Raises:
        MistifyError: INVALID_MODEL if it contains anything but files and directories, or exceeds the limits.
    """
    total = 0
    for count, entry in enumerate(_entries(path), 1):
        mode = entry.stat(follow_symlinks=False)
        if not (stat.S_ISREG(mode.st_mode) or stat.S_ISDIR(mode.st_mode)):
            raise invalid(path, f"{entry.name}, which is a link or a device", "only files and directories")
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
