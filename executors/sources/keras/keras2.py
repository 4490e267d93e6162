"""Keras 2 files: checked to run no code, loaded by tf_keras, and translated."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import keras

from executors.inspection.errors import invalid
from executors.sources.errors import unreadable
from executors.sources.keras.translation import translated

#: Everything that a Keras 2 file may name: models, layers, and parts of layer configurations. Layers that run
#: code were refused before (`executors.inspection`).
_CLASSES = frozenset(
    {"Functional", "Model", "Sequential"}
    | {"Policy", "DTypePolicy", "__keras_tensor__"}
    | {
        name
        for module in (keras.layers, keras.initializers, keras.regularizers, keras.constraints)
        for name in vars(module)
        if name[0].isupper()
    }
)


def is_keras2(path: Path) -> bool:
    """Check whether a possibly damaged file was written by Keras 2."""
    try:
        return _version(path).startswith("2.")
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return False


def load_keras2(path: Path) -> keras.Model:
    """Load a Keras 2 file, and translate it.

    Raises:
        MistifyError: INVALID_MODEL if it cannot be loaded, names anything but Keras layers, or computes
            different outputs after translation.
    """
    import tf_keras  # noqa: PLC0415 (a second Keras, only for old files)

    check_classes(path, _config(path))
    try:
        # `safe_mode` only exists for .keras files; HDF5 files were checked for everything that it refuses.
        old = tf_keras.models.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        raise unreadable(path, error) from error
    return translated(path, old)


def check_classes(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse a configuration that names anything but layers, and their parts, that both Keras versions share.

    Loading other classes could run hidden code: Keras 2 only has a safe mode for `.keras` files.

    Raises:
        MistifyError: INVALID_MODEL, naming the layers.
    """
    foreign: list[str] = []

    def look(entry: dict[str, Any]) -> dict[str, Any]:
        package = str(entry.get("module") or "keras").partition(".")[0]
        if "class_name" in entry and not (
            entry["class_name"] in _CLASSES and package in ("keras", "tf_keras", "builtins")
        ):
            settings = entry.get("config")
            name = settings.get("name") if isinstance(settings, dict) else None
            kind = str(entry["class_name"])
            foreign.append(f"layer {name!r} is a {kind}" if name else kind)
        return entry

    json.loads(json.dumps(config), object_hook=look)
    if foreign:
        raise invalid(
            path, ", ".join(foreign), "a functional model of Keras's own layers", "see CONTRIBUTING.md"
        )


def _version(path: Path) -> str:
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            return str(json.loads(archive.read("metadata.json"))["keras_version"])
    with h5py.File(path) as file:
        return str(file.attrs["keras_version"])


def _config(path: Path) -> dict[str, Any]:
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
            return {key: value for key, value in config.items() if key != "compile_config"}
    with h5py.File(path) as file:
        return dict(json.loads(file.attrs["model_config"]))
