"""keras_hub presets: directories written by `save_to_preset`."""

import json
from pathlib import Path
from typing import Any

import keras

from executors.inspection.errors import invalid
from executors.sources.errors import unreadable

#: Default number of tokens of a text.
SEQUENCE = 128


def load_preset(path: Path, sequence: int | None = None, classes: int | None = None) -> keras.Model:
    """Load the model in a preset's directory, for texts of a fixed length.

    A preset of a task is loaded as that task. A preset with only a backbone gets a classifier with random
    weights if `classes` is given. The tokenizer is not loaded: the inputs are those of the backbone, such as
    `token_ids` [batch, sequence].

    Args:
        sequence: Number of tokens of a text; None for 128.
        classes: Number of classes of a text classifier.

    Raises:
        MistifyError: INVALID_MODEL if keras_hub is not installed or cannot load it.
    """
    try:
        import keras_hub  # noqa: PLC0415 (optional)
    except ModuleNotFoundError as error:
        raise invalid(
            path, "a keras_hub preset, but keras_hub is not installed", "keras_hub",
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
    """Return the model with inputs of a fixed length."""
    inputs = {
        tensor.name: keras.Input(
            [size or sequence for size in tensor.shape[1:]], name=tensor.name, dtype=tensor.dtype
        )
        for tensor in model.inputs
    }
    return keras.Model(inputs, model(inputs))
