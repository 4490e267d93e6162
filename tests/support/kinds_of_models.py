"""Small models of many kinds with data that they can learn; training and test examples differ."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import keras
import numpy as np

layers = keras.layers

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        save: Saves a model below a directory and returns its name for a config.
        data: Generates that many examples, [examples, ...] by input and output.
        least: Metric and minimum score of each output, above those of guessing.
        dataset: Additional settings for the config's `dataset`.
    """

    save: Callable[[Path], str]
    data: Callable[[np.random.Generator, int], Arrays]
    least: Mapping[str, tuple[str, float]]
    dataset: Mapping[str, Any] = field(default_factory=dict)


def _saved(model: keras.Model, directory: Path, name: str = "model.keras") -> str:
    model.save(directory / name)
    return name


def _floats(array: Any) -> Any:
    return np.asarray(array, np.float32)


def _squares(rng: np.random.Generator, count: int, size: int = 16) -> tuple[Any, Any, Any]:
    """Return noisy images of squares, whether each is hollow, and the corners relative to the image."""
    images = rng.normal(0, 0.3, (count, size, size, 1))
    kinds, sides = rng.integers(2, size=count), rng.integers(size // 4, size // 2 + 1, count)
    boxes = []
    for image, kind, side in zip(images, kinds, sides, strict=True):
        top, left = rng.integers(0, size - side + 1, 2)
        image[top : top + side, left : left + side] += 1.5
        if kind:
            image[top + 1 : top + side - 1, left + 1 : left + side - 1] -= 1.5
        boxes.append([left, top, left + side, top + side])
    return _floats(images), kinds, _floats(boxes) / size


def _two_inputs(directory: Path) -> str:
    picture, reading = keras.Input((8, 8, 1), name="picture"), keras.Input((6,), name="reading")
    x = layers.Conv2D(16, 3, activation="relu")(picture)
    x = layers.Flatten()(layers.MaxPooling2D()(x))
    x = layers.Concatenate()([layers.Dense(24, "relu")(x), layers.Dense(24, "relu")(reading)])
    x = layers.Dense(32, "relu")(x)
    outputs = [layers.Dense(2, "softmax", name="kind")(x), layers.Dense(1, name="amount")(x)]
    return _saved(keras.Model([picture, reading], outputs), directory)


def _two_inputs_data(rng: np.random.Generator, count: int) -> Arrays:
    pictures, reading = rng.normal(size=(count, 8, 8, 1)), rng.normal(size=(count, 6))
    kind = rng.integers(2, size=count)
    pictures[:, :4] += 1.5 * kind[:, None, None, None]
    amount = reading[:, :2].sum(axis=1, keepdims=True)
    return {
        "picture": _floats(pictures),
        "reading": _floats(reading),
        "kind": kind,
        "amount": _floats(amount),
    }


def _lstm(directory: Path) -> str:
    steps = keras.Input((12, 4), name="steps")
    x = layers.LSTM(24, return_sequences=True)(steps)
    x = layers.LSTM(16)(x)
    return _saved(keras.Model(steps, layers.Dense(3, "softmax", name="gesture")(x)), directory)


def _lstm_data(rng: np.random.Generator, count: int) -> Arrays:
    """Return noisy waves and their frequencies."""
    gesture, phase = rng.integers(3, size=count), rng.uniform(0, 2 * np.pi, (count, 1, 4))
    angle = np.array([0.3, 0.9, 2.0])[gesture][:, None, None] * np.arange(12)[None, :, None] + phase
    return {"steps": _floats(np.sin(angle) + rng.normal(0, 0.2, angle.shape)), "gesture": gesture}


def _u_net(directory: Path) -> str:
    image = keras.Input((16, 16, 1), name="image")

    def twice(x: Any, width: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
        return x

    fine = twice(image, 8)
    coarse = twice(layers.MaxPooling2D()(fine), 16)
    x = twice(layers.MaxPooling2D()(coarse), 24)
    for beside, width in ((coarse, 16), (fine, 8)):
        x = layers.Conv2DTranspose(width, 2, strides=2)(x)
        x = twice(layers.Concatenate()([beside, x]), width)
    return _saved(keras.Model(image, layers.Conv2D(2, 1, activation="softmax", name="mask")(x)), directory)


def _u_net_data(rng: np.random.Generator, count: int) -> Arrays:
    images, _, boxes = _squares(rng, count)
    places = (np.arange(16) + 0.5) / 16
    left, top, right, bottom = boxes.T[..., None]
    rows, columns = (top < places) & (places < bottom), (left < places) & (places < right)
    return {"image": images, "mask": (rows[:, :, None] & columns[:, None, :]).astype(np.int64)}


def _detector(directory: Path) -> str:
    """Save a detector: a grid of cells that each predict the class and position of the object in them."""
    image = keras.Input((16, 16, 1), name="image")
    x = layers.Conv2D(16, 3, 2, padding="same", activation="relu")(image)
    x = layers.Conv2D(24, 3, 2, padding="same", activation="relu")(x)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    outputs = [
        layers.Conv2D(3, 1, activation="softmax", name="kinds")(x),
        layers.Conv2D(4, 1, activation="sigmoid", name="boxes")(x),
    ]
    model = keras.Model(image, outputs)
    model.get_layer("boxes").bias.assign([-1.5, -1.5, 1.5, 1.5])
    return _saved(model, directory)


def _detector_data(rng: np.random.Generator, count: int) -> Arrays:
    images, kinds, boxes = _squares(rng, count)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    columns, rows = np.minimum((centres * 4).astype(int), 3).T
    cells = np.zeros((count, 4, 4), np.int64)
    cells[np.arange(count), rows, columns] = 1 + kinds
    return {"image": images, "kinds": cells, "boxes": np.tile(boxes[:, None, None], (1, 4, 4, 1))}


def _bert(directory: Path) -> str:
    import keras_hub

    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=30, num_layers=2, num_heads=2, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )  # fmt: skip
    backbone.save_to_preset(str(directory / "tiny_bert"))
    return "keras_hub/tiny_bert?sequence=10&classes=2"


def _bert_data(rng: np.random.Generator, count: int) -> Arrays:
    """Return texts with words from either half of the vocabulary, and which half it is."""
    label = rng.integers(2, size=count)
    ids = rng.integers(4, 17, (count, 10)) + 13 * label[:, None] * (rng.random((count, 10)) < 0.7)
    there = np.arange(10) < rng.integers(5, 11, count)[:, None]
    return {
        "token_ids": (ids * there).astype(np.int32),
        "segment_ids": np.zeros((count, 10), np.int32),
        "padding_mask": there.astype(np.int32),
        "y": label,
    }


def _mobile_net(directory: Path) -> str:
    """Save a small MobileNetV3 with inverted residuals and squeeze-and-excitation (Howard et al., 2019)."""
    image = keras.Input((16, 16, 1), name="image")

    def normed(x: Any, swish: bool = True) -> Any:
        x = layers.BatchNormalization(momentum=0.9)(x)
        return layers.Activation("hard_silu")(x) if swish else x

    x = normed(layers.Conv2D(12, 3, 2, padding="same", use_bias=False)(image))
    for stride in (1, 2):
        before = x
        x = normed(layers.Conv2D(48, 1, use_bias=False)(x))
        x = normed(layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x))
        scale = layers.GlobalAveragePooling2D(keepdims=True)(x)
        scale = layers.Conv2D(12, 1, activation="relu")(scale)
        scale = layers.Activation("hard_sigmoid")(layers.Conv2D(48, 1)(scale))
        x = normed(layers.Conv2D(12, 1, use_bias=False)(layers.Multiply()([x, scale])), swish=False)
        x = layers.Add()([before, x]) if stride == 1 else x
    x = layers.GlobalAveragePooling2D()(normed(layers.Conv2D(32, 1, use_bias=False)(x)))
    return _saved(keras.Model(image, layers.Dense(2, "softmax", name="kind")(x)), directory)


def _kinds_data(rng: np.random.Generator, count: int) -> Arrays:
    images, kinds, _ = _squares(rng, count)
    return {"image": images, "kind": kinds}


#: Name of the module with a subclassed model.
OWN = "own_model"
SUBCLASSED = """
import keras
from keras import layers

@keras.saving.register_keras_serializable("own_model")
class OwnModel(keras.Model):
    def __init__(self, width=24, **options):
        super().__init__(**options)
        self.width = width
        self.stem = layers.Conv2D(width, 3, 2, padding="same", name="stem")
        self.body = layers.Conv2D(width, 3, padding="same", name="body")
        self.pooled = layers.GlobalAveragePooling2D()
        self.head = layers.Dense(2, activation="softmax", name="kind")

    def call(self, image):
        x = keras.ops.relu(self.stem(image))
        x = x + keras.ops.relu(self.body(x))
        return self.head(self.pooled(x))

    def get_config(self):
        return {**super().get_config(), "width": self.width}
"""


def _subclassed(directory: Path) -> str:
    model = import_module(OWN).OwnModel()  # a plug-in that has to be installed
    model(np.zeros((1, 16, 16, 1), np.float32))
    return _saved(model, directory)


def _keras2(directory: Path) -> str:
    import tf_keras

    old = tf_keras.layers
    image = old.Input((16, 16, 1), name="image")
    x = old.Conv2D(16, 3, 2, padding="same", use_bias=False)(image)
    for width in (24, 32):
        x = old.ReLU(6.0)(old.BatchNormalization(momentum=0.9)(x))
        x = old.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
        x = old.ReLU(6.0)(old.BatchNormalization(momentum=0.9)(x))
        x = old.Conv2D(width, 1, use_bias=False)(x)
    x = old.GlobalAveragePooling2D()(old.ReLU(6.0)(old.BatchNormalization(momentum=0.9)(x)))
    model = tf_keras.Model(image, old.Dense(2, "softmax", name="kind")(x))
    model.save(directory / "old.h5")
    return "old.h5"


KINDS = {
    "two inputs and outputs": Kind(
        _two_inputs, _two_inputs_data, {"kind": ("accuracy", 0.85), "amount": ("mse", 0.5)}
    ),
    "LSTM": Kind(_lstm, _lstm_data, {"gesture": ("accuracy", 0.7)}),
    "U-Net": Kind(_u_net, _u_net_data, {"mask": ("mean_iou", 0.7)}),
    "detector": Kind(
        _detector,
        _detector_data,
        {"kinds": ("mean_iou", 0.5), "boxes": ("boxes_found", 0.2)},
        {
            "losses": {"boxes": "box_overlap"},
            "metrics": {"boxes": "boxes_found"},
            "class_weights": [1.0, 8.0, 8.0],
        },
    ),
    "BERT": Kind(_bert, _bert_data, {"": ("accuracy", 0.8)}),
    "MobileNetV3": Kind(_mobile_net, _kinds_data, {"kind": ("accuracy", 0.8)}),
    "subclassed": Kind(_subclassed, _kinds_data, {"kind": ("accuracy", 0.8)}),
    "Keras 2": Kind(_keras2, _kinds_data, {"kind": ("accuracy", 0.8)}),
}


def write_kind(kind: Kind, directory: Path, settings: Mapping[str, Any], train: int = 800) -> None:
    """Write a model, its data, and a config with a goal of half the model's multiply-adds."""
    keras.utils.set_random_seed(0)
    for part, (seed, count) in {"train": (1, train), "test": (2, 300)}.items():
        np.savez(directory / f"{part}.npz", **kind.data(np.random.default_rng(seed), count))
    goal = {
        "id": "half",
        "model": kind.save(directory),
        "dataset": {"train": "train.npz", "test": "test.npz", **kind.dataset},
        "algorithm": {"name": "morphnet", "config": dict(settings)},
        "adaptation_goal": {"FLOP": "0.5x"},
    }
    (directory / "goals.json").write_text(json.dumps([goal]))
