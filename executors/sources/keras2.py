"""Models of Keras 2, loaded by tf_keras, rebuilt by Keras 3, compared."""

import inspect
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from executors.inspection.errors import invalid
from executors.sources.errors import unreadable

_MODELS = frozenset({"Functional", "Model", "Sequential"})

#: Whatever a file of Keras 2 may name: models, layers, and what layers are configured with. Layers that run
#: code were refused before (`executors.inspection`).
_CLASSES = (
    _MODELS
    | {"Policy", "DTypePolicy", "__keras_tensor__"}
    | {
        name
        for module in (keras.layers, keras.initializers, keras.regularizers, keras.constraints)
        for name in vars(module)
        if name[0].isupper()
    }
)

#: Settings of all layers.
_COMMON = frozenset({"name", "dtype", "trainable"})

#: Settings that Keras 3 calls by another name.
_RENAMED = {"LeakyReLU": {"alpha": "negative_slope"}}


def is_keras2(path: Path) -> bool:
    """Whether Keras 2 has written a file, which may be damaged."""
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
    """Refuse a configuration that names anything but layers that both Keras share, and what belongs to them.

    Loading can run code that is hidden in others: Keras 2 has no safe mode but for `.keras` files.

    Raises:
        MistifyError: INVALID_MODEL, naming the layers.
    """
    foreign: list[str] = []

    def look(found: dict[str, Any]) -> dict[str, Any]:
        package = str(found.get("module") or "keras").partition(".")[0]
        if "class_name" in found and not (
            found["class_name"] in _CLASSES and package in ("keras", "tf_keras", "builtins")
        ):
            settings = found.get("config")
            name = settings.get("name") if isinstance(settings, dict) else None
            kind = str(found["class_name"])
            foreign.append(f"layer {name!r} is a {kind}" if name else kind)
        return found

    json.loads(json.dumps(config), object_hook=look)
    if foreign:
        raise invalid(
            path, ", ".join(foreign), "a functional model of Keras's own layers", "see CONTRIBUTING.md"
        )


def translated(path: Path, old: Any) -> keras.Model:
    """A model of tf_keras as one of Keras 3, which computes the same.

    Raises:
        MistifyError: INVALID_MODEL, it cannot be rebuilt, or computes something else.
    """
    try:
        config = json.loads(json.dumps(old.get_config()), object_hook=_as_keras3)
        kind = keras.Sequential if type(old).__name__ == "Sequential" else keras.Model
        model = kind.from_config(config)
        _copy_weights(old, model)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise unreadable(path, error) from error
    _compare(path, old, model)
    return model


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


def _as_keras3(config: dict[str, Any]) -> dict[str, Any]:
    """A layer's config as Keras 3 takes it, without options it no longer has: `_compare` decides."""
    name, settings = config.get("class_name"), config.get("config")
    layer = getattr(keras.layers, name, None) if isinstance(name, str) else None
    if not isinstance(settings, dict) or name in _MODELS or not isinstance(layer, type):
        return config
    renamed = _RENAMED.get(str(name), {})
    settings = {renamed.get(key, key): value for key, value in settings.items()}
    known = _COMMON | _parameters(layer)
    settings = {key: value for key, value in settings.items() if key in known}
    if name == "BatchNormalization" and isinstance(settings.get("axis"), list):
        (settings["axis"],) = settings["axis"]
    return {**config, "config": settings}


def _parameters(layer: type) -> frozenset[str]:
    """The names of the settings of a layer of Keras 3."""
    own = [vars(kind)["__init__"] for kind in layer.__mro__ if "__init__" in vars(kind)]
    names = {name for function in own for name in inspect.signature(function).parameters}
    return frozenset(names | ({"batch_input_shape"} if layer is keras.layers.InputLayer else set()))


def _copy_weights(old: Any, model: keras.Model) -> None:
    for layer in old.layers:
        new = model.get_layer(layer.name)
        if isinstance(new, keras.Model):
            # Keras 2 has a model's trainable weights first, Keras 3 has them layer by layer.
            _copy_weights(layer, new)
        else:
            new.set_weights(layer.get_weights())


def _compare(path: Path, old: Any, model: keras.Model) -> None:
    """Refuse a translation that computes something else."""
    rng = np.random.default_rng(0)
    indices = any(isinstance(layer, keras.layers.Embedding) for layer in model.layers)
    inputs = []
    for tensor in model.inputs:
        shape = [4, *(size or 32 for size in tensor.shape[1:])]
        inputs.append(
            rng.integers(0, 2, shape).astype(np.float32)
            if indices
            else rng.uniform(size=shape).astype(np.float32)
        )
    pairs = zip(_outputs(old, inputs), _outputs(model, inputs), strict=True)
    difference = max(float(np.abs(before - after).max()) for before, after in pairs)
    if not difference < 1e-4:
        raise invalid(
            path, f"outputs that differ by {difference:.2g} once translated to Keras 3", "equal outputs",
            "save the model by Keras 3",
        )  # fmt: skip


def _outputs(model: Any, inputs: list[np.ndarray[Any, Any]]) -> Iterator[np.ndarray[Any, Any]]:
    outputs = model(inputs if len(inputs) > 1 else inputs[0])
    outputs = list(outputs.values()) if isinstance(outputs, dict) else outputs
    return map(np.asarray, outputs if isinstance(outputs, list | tuple) else [outputs])
