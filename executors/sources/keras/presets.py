"""Presets of keras_hub: directories that `save_to_preset` has written."""

import json
from pathlib import Path
from typing import Any

import keras

from executors.inspection.errors import invalid
from executors.sources.errors import unreadable

#: Tokens of a text, where nothing else is said.
SEQUENCE = 128


def load_preset(path: Path, sequence: int | None = None, classes: int | None = None) -> keras.Model:
    """Return the model in a preset's directory, for texts of one length.

    A preset of a task is loaded as that task; one of a backbone alone gets a classifier with random weights
    if classes are asked for. Its tokenizer is not loaded: inputs are the backbone's own, such as `token_ids`
    [batch, sequence].

    Args:
        path: The directory of the preset.
        sequence: Number of tokens of a text; None for 128.
        classes: Number of classes of a text classifier.

    Raises:
        MistifyError: INVALID_MODEL: keras_hub is not installed or cannot load it.
    """
    try:
        import keras_hub  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise invalid(
            path, "a preset of keras_hub, which is not installed", "keras_hub",
            "run pip install 'mistify-porting[hub]' on the server",
        ) from error  # fmt: skip
    keras.utils.set_random_seed(0)
    try:
        model = _load(keras_hub, path, classes)
        return _fixed(model, sequence or SEQUENCE)
    except Exception as error:
        raise unreadable(path, error) from error


def _load(keras_hub: Any, path: Path, classes: int | None) -> keras.Model:
    if classes is not None:
        return keras_hub.models.TextClassifier.from_preset(str(path), num_classes=classes, preprocessor=None)
    task = path / "task.json"
    if task.is_file():
        kind = getattr(keras_hub.models, json.loads(task.read_bytes())["class_name"])
        return kind.from_preset(str(path), preprocessor=None)
    return keras_hub.models.Backbone.from_preset(str(path))


def _fixed(model: keras.Model, sequence: int) -> keras.Model:
    """Return the model with inputs of one length."""
    inputs = {
        tensor.name: keras.Input(
            [size or sequence for size in tensor.shape[1:]], name=tensor.name, dtype=tensor.dtype
        )
        for tensor in model.inputs
    }
    return keras.Model(inputs, model(inputs))
