"""Small networks, trained to different degrees on scikit-learn's data, for `benchmarks.porting.forecasts`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import keras
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

_TEST_SHARE: Final = 0.3

_QUICK: Final = {"source_steps": 200, "adapt_steps": 60, "tune_steps": 120}
_LONG: Final = {"source_steps": 600, "adapt_steps": 200, "tune_steps": 300}
_ADAM: Final = {"optimizer": "adam", **_QUICK}


class Case(NamedTuple):
    """A network that a user might port.

    Attributes:
        name: Name of the case.
        build: Makes the network with random weights.
        data: Loads the examples: inputs and targets.
        epochs: Epochs of training before porting; 0 for random weights.
        settings: Settings of the algorithm; empty for the defaults.
        fitted: Whether its outcomes were used to choose the constants of the forecast.
    """

    name: str
    build: Callable[[], keras.Model]
    data: Callable[[], tuple[Any, Any]]
    epochs: int
    settings: Mapping[str, object]
    algorithm: str = "auto"
    fitted: bool = False


def write_case(case: Case, seed: int, directory: Path) -> dict[str, object]:
    """Write the model and the data of a case, and return the common part of its configs."""
    directory.mkdir(parents=True)
    inputs, targets = case.data()
    order = np.random.default_rng(seed).permutation(len(inputs))
    tests = int(_TEST_SHARE * len(inputs))
    train, test = order[tests:], order[:tests]
    for name, rows in (("train", train), ("test", test)):
        np.savez(directory / f"{name}.npz", x=inputs[rows], y=targets[rows])
    keras.utils.set_random_seed(seed)
    model = case.build()
    if case.epochs:
        loss = "mse" if targets.dtype.kind == "f" else "sparse_categorical_crossentropy"
        model.compile("adam", loss)
        model.fit(inputs[train], targets[train], batch_size=64, epochs=case.epochs, verbose=0)
    model.save(directory / "model.keras")
    return {
        "model": "model.keras",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "algorithm": {"name": case.algorithm, "config": {**case.settings, "seed": seed}},
    }


def _digits() -> tuple[Any, Any]:
    images, labels = load_digits(return_X_y=True)
    return (images / 16).reshape(-1, 8, 8, 1).astype(np.float32), labels.astype(np.int64)


def _flat_digits() -> tuple[Any, Any]:
    images, labels = _digits()
    return images.reshape(-1, 64), labels


def _noisy_digits() -> tuple[Any, Any]:
    """Return digits with strong noise."""
    images, labels = _digits()
    return (images + np.random.default_rng(1).normal(0, 0.6, images.shape)).astype(np.float32), labels


def _cancer() -> tuple[Any, Any]:
    inputs, labels = load_breast_cancer(return_X_y=True)
    return _standard(inputs), labels.astype(np.int64)


def _diabetes() -> tuple[Any, Any]:
    inputs, targets = load_diabetes(return_X_y=True)
    return _standard(inputs), _standard(targets[:, None])


def _standard(values: Any) -> Any:
    return ((values - values.mean(axis=0)) / values.std(axis=0)).astype(np.float32)


def _convolutional() -> keras.Model:
    layers = keras.layers
    inputs = keras.Input((8, 8, 1), name="x")
    x = inputs
    for width, stride in ((16, 1), (32, 2), (32, 1)):
        x = layers.Conv2D(width, 3, stride, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    outputs = layers.Dense(10, "softmax", name="y")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, outputs)


def _plain() -> keras.Model:
    """Return a convolutional network without batch norms."""
    layers = keras.layers
    inputs = keras.Input((8, 8, 1), name="x")
    x = inputs
    for width in (24, 24, 48):
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D()(x)
    outputs = layers.Dense(10, "softmax", name="y")(layers.Flatten()(x))
    return keras.Model(inputs, outputs)


def _residual() -> keras.Model:
    layers = keras.layers
    inputs = keras.Input((8, 8, 1), name="x")
    x = layers.Conv2D(24, 3, padding="same")(inputs)
    for _ in range(3):
        y = layers.ReLU()(layers.BatchNormalization()(x))
        y = layers.Conv2D(24, 3, padding="same", use_bias=False)(y)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        x = layers.Add()([x, layers.Conv2D(24, 3, padding="same")(y)])
    outputs = layers.Dense(10, "softmax", name="y")(layers.GlobalAveragePooling2D()(layers.ReLU()(x)))
    return keras.Model(inputs, outputs)


def _depthwise() -> keras.Model:
    layers = keras.layers
    inputs = keras.Input((8, 8, 1), name="x")
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    for width, stride in ((32, 2), (64, 1), (64, 1)):
        x = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.Conv2D(width, 1, use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    outputs = layers.Dense(10, "softmax", name="y")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, outputs)


def _perceptron(inputs_count: int, outputs_count: int, activation: str) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        inputs = keras.Input((inputs_count,), name="x")
        x = inputs
        for _ in range(2):
            x = keras.layers.Dense(64, "relu")(x)
        return keras.Model(inputs, keras.layers.Dense(outputs_count, activation, name="y")(x))

    return build


CASES: Final = (
    Case("convolutional, untrained", _convolutional, _digits, 0, _QUICK, fitted=True),
    Case("convolutional, trained", _convolutional, _digits, 20, _QUICK, fitted=True),
    Case("perceptron, untrained", _perceptron(64, 10, "softmax"), _flat_digits, 0, _QUICK, fitted=True),
    Case("residual, untrained", _residual, _digits, 0, _QUICK, fitted=True),
    Case("plain, trained", _plain, _digits, 15, _QUICK, algorithm="chamnet"),
    Case("perceptron, cancer", _perceptron(30, 2, "softmax"), _cancer, 0, _QUICK),
    Case("convolutional, noisy digits", _convolutional, _noisy_digits, 0, _LONG, algorithm="morphnet"),
    Case("perceptron, diabetes", _perceptron(10, 1, "linear"), _diabetes, 5, _ADAM),
    Case("depthwise, default settings", _depthwise, _digits, 20, {}),
    Case("residual, hardly trained", _residual, _digits, 2, _LONG),
    Case("plain, untrained", _plain, _digits, 0, _ADAM),
)
