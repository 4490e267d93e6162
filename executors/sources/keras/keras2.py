"""Files of Keras 2: loaded by tf_keras, once it is known that this runs no code, and translated."""

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

#: Whatever a file of Keras 2 may name: models, layers, and what layers are configured with. Layers that run
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
    """Check whether Keras 2 has written a file, which may be damaged."""
    try:
        return _version(path).startswith("2.")
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return False


def load_keras2(path: Path) -> keras.Model:
    """Translate a file of Keras 2.

    Raises:
        MistifyError: INVALID_MODEL: it cannot be loaded, names anything but layers of Keras, or computes
            something else once it is translated.
    """
    import tf_keras  # noqa: PLC0415 - a second Keras, for old files alone

    check_classes(path, _config(path))
    try:
        # `safe_mode` is for .keras files; those in HDF5 have none, and were checked for what it refuses.
        old = tf_keras.models.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        raise unreadable(path, error) from error
    return translated(path, old)


def check_classes(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse a configuration that names anything but layers, and their parts, that both Keras share.

    Loading could run code hidden in others: Keras 2 has no safe mode except for `.keras` files.

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
