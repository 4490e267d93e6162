"""Source models: `.keras`, Keras 2 and 3 `.h5`, and the built-in one; checked, flat, ready to adapt."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from executors.data.loading import load_dataset
from executors.evaluation import recalibrate
from executors.signature import signature_of
from executors.structure import UnsupportedLayerError, analyse, narrow
from executors.structure.handlers import registered
from mistify.errors import ErrorCode, MistifyError, Problem

_SUFFIXES = (".keras", ".h5", ".hdf5")


def load_source(path: Path) -> keras.Model:
    """Load a model file as a flat functional model of Keras 3.

    Raises:
        MistifyError: INVALID_MODEL, naming the file, what is wrong and what would do.
    """
    if path.suffix not in _SUFFIXES:
        raise _invalid(
            path, f"a file named {path.name}", f"one of {', '.join(_SUFFIXES)}", "save it by model.save(FILE)"
        )
    try:
        model = keras.models.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        # Keras reports an unreadable file by a dozen types of exception.
        if path.suffix == ".keras" or not h5py.is_hdf5(path):
            raise _unreadable(path, error) from error
        model = _load_keras2(path, error)
    return flatten(path, model)


def flatten(path: Path | str, model: keras.Model) -> keras.Model:
    """A copy with nested models inlined, once it is known that it can be adapted.

    Raises:
        MistifyError: INVALID_MODEL: a layer that is not supported, or a free input size.
    """
    try:
        structure = analyse(model)
        structure.network()
        flat = narrow(structure, {})
    except (UnsupportedLayerError, TypeError) as error:
        raise _invalid(
            path, str(error), "a functional model of supported layers", "see CONTRIBUTING.md"
        ) from error
    return flat


def builtin_source(name: str) -> keras.Model:
    """A model that comes with Mistify, trained on the built-in data it is named after.

    Raises:
        MistifyError: NOT_FOUND, with the names that exist.
    """
    if name not in _BUILTIN:
        known = ", ".join(_BUILTIN)
        raise MistifyError(
            ErrorCode.NOT_FOUND, f"built-in model {name!r} is unknown; expected one of {known}"
        )
    return _BUILTIN[name]()


def _digits_resnet() -> keras.Model:
    """A small residual network for 8 x 8 digits, trained for some ten seconds."""
    layers = keras.layers
    keras.utils.set_random_seed(0)

    def block(x: Any, width: int, strides: int) -> Any:
        y = layers.Conv2D(width, 3, strides, "same", use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same", use_bias=False)(y))
        shortcut = layers.Conv2D(width, 1, strides)(x)
        return layers.ReLU()(layers.Add()([y, shortcut]))

    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    for width, strides in ((16, 1), (32, 2), (64, 2)):
        x = block(x, width, strides)
    outputs = layers.Dense(10, "softmax", name="digit")(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, outputs, name="digits_resnet")
    data = load_dataset("builtin:digits-train", signature_of(model))
    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy")
    model.fit(data.inputs["image"], data.targets["digit"], batch_size=64, epochs=12, verbose=0)
    recalibrate(model, data)
    return model


_BUILTIN: dict[str, Callable[[], keras.Model]] = {"digits-resnet": _digits_resnet}

#: Options of Keras 2 that Keras 3 no longer has; they meant nothing there.
_GONE = {
    "DepthwiseConv2D": {"groups"},
    "Conv2DTranspose": {"groups"},
    "SeparableConv2D": {"groups", "kernel_initializer", "kernel_regularizer", "kernel_constraint"},
}

#: Whatever a Keras 2 file may name: models, supported layers, what layers are configured with.
_KERAS2_CLASSES = frozenset(
    {"Functional", "Model", "Sequential", "InputLayer", "Policy", "DTypePolicy"}
    | {"__keras_tensor__"}
    | {layer.__name__ for layer in registered()}
    | {
        name
        for module in (keras.initializers, keras.regularizers, keras.constraints)
        for name in vars(module)
        if name[0].isupper()
    }
)


def _load_keras2(path: Path, reason: Exception) -> keras.Model:
    """Translate a Keras 2 file that Keras 3 refuses: loaded by tf_keras, rebuilt, compared."""
    import tf_keras  # noqa: PLC0415 - a second Keras, for old files alone

    _refuse_code(path, reason)
    try:
        old = tf_keras.models.load_model(path, compile=False)
    except Exception:
        raise _unreadable(path, reason) from reason
    try:
        config = json.loads(json.dumps(old.get_config()), object_hook=_as_keras3)
        kind = keras.Sequential if isinstance(old, tf_keras.Sequential) else keras.Model
        model = kind.from_config(config)
        for layer in old.layers:
            model.get_layer(layer.name).set_weights(layer.get_weights())
    except (TypeError, ValueError) as error:
        raise _unreadable(path, error) from error
    _compare(path, old, model)
    return model


def _refuse_code(path: Path, reason: Exception) -> None:
    """Refuse a Keras 2 file that names anything but layers that can be adapted, and what belongs to them.

    Loading such a file can run code that is hidden in it, in a Lambda layer for example: Keras 2 has no
    safe mode for HDF5 files.
    """
    with h5py.File(path) as file:
        text = file.attrs.get("model_config")
    if text is None:
        raise _unreadable(path, reason)
    foreign: list[str] = []

    def look(config: dict[str, Any]) -> dict[str, Any]:
        module = config.get("module") or "keras"
        if "class_name" in config and not (
            config["class_name"] in _KERAS2_CLASSES and str(module).partition(".")[0] in ("keras", "tf_keras")
        ):
            settings = config.get("config")
            name = settings.get("name") if isinstance(settings, dict) else None
            foreign.append(f"layer {name!r} is a {config['class_name']}" if name else config["class_name"])
        return config

    try:
        json.loads(text, object_hook=look)
    except ValueError as error:
        raise _unreadable(path, error) from error
    if foreign:
        raise _invalid(
            path,
            ", ".join(map(str, foreign)),
            "a functional model of supported layers",
            "see CONTRIBUTING.md",
        )


def _as_keras3(config: dict[str, Any]) -> dict[str, Any]:
    """A layer's config as Keras 3 takes it: without options it no longer has, with one axis as a number."""
    settings: dict[str, Any] = config.get("config", {})
    gone = _GONE.get(config.get("class_name", ""))
    if gone is not None:
        return {**config, "config": {key: value for key, value in settings.items() if key not in gone}}
    if config.get("class_name") == "BatchNormalization" and isinstance(settings.get("axis"), list):
        return {**config, "config": {**settings, "axis": settings["axis"][0]}}
    return config


def _compare(path: Path, old: Any, model: keras.Model) -> None:
    """Refuse a translation that computes something else."""
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        return
    shape = [4, *(size or 32 for size in model.input_shape[1:])]
    inputs = np.random.default_rng(0).uniform(size=shape).astype(np.float32)
    difference = float(np.abs(np.asarray(old(inputs)) - np.asarray(model(inputs))).max())
    if not difference < 1e-4:
        raise _invalid(
            path, f"outputs that differ by {difference:.2g} once translated to Keras 3", "equal outputs",
            "save the model by Keras 3",
        )  # fmt: skip


def _unreadable(path: Path, error: Exception) -> MistifyError:
    # Keras wraps the cause in pages of configuration, and advises to trust the file.
    cause = str(error).rpartition("Exception encountered: ")[2].strip() or type(error).__name__
    given = cause.splitlines()[0].partition(". ")[0].rstrip(".")
    return _invalid(
        path,
        f"a file that Keras cannot load ({given[:200]})",
        "a Keras model of Keras's own layers, without Python code of its own",
        "save it by model.save(FILE)",
    )


def _invalid(path: Path | str, given: str, expected: str, fix: str) -> MistifyError:
    problem = Problem(str(path), given, expected, fix)
    return MistifyError(ErrorCode.INVALID_MODEL, f"{path} cannot be ported", [problem])
