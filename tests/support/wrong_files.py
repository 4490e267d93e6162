"""Broken models and data, next to valid ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

layers = keras.layers

CLASSES = 3


def tiny(*body: Any, shape: Sequence[int] = (8, 8, 1)) -> keras.Model:
    before = body or (layers.Conv2D(8, 3, activation="relu"), layers.Conv2D(8, 3), layers.Flatten())
    return keras.Sequential([keras.Input(shape), *before, layers.Dense(CLASSES, "softmax", name="scores")])


@keras.saving.register_keras_serializable()
class Doubled(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs * 2


def write_models(root: Path) -> None:
    keras.utils.set_random_seed(0)
    tiny().save(root / "tiny.keras")
    unknown = tiny(layers.ConvLSTM1D(4, 3, name="product"), layers.Flatten())
    unknown.save(root / "unknown.keras")
    tiny(layers.Lambda(lambda x: x * 2), layers.Flatten()).save(root / "lambda.keras")
    tiny(layers.Lambda(lambda x: x * 2, name="hidden"), layers.Flatten()).save(root / "lambda.h5")
    tiny(Doubled(name="own"), layers.Flatten()).save(root / "subclass.keras")
    tiny(layers.GlobalAveragePooling2D(), shape=(None, None, 1)).save(root / "free.keras")
    noise = np.random.default_rng(0).bytes(4000)
    for name in ("noise.keras", "noise.h5", "notes.txt"):
        (root / name).write_bytes(noise)
    with h5py.File(root / "table.h5", "w") as file:
        file["numbers"] = [1, 2, 3]


def write_data(root: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(40, 8, 8, 1)).astype(np.float32)
    y = np.arange(40) % CLASSES
    holed, labels = x.copy(), y.copy()
    holed[7, 3, 3, 0] = np.nan
    labels[5] = CLASSES
    files: dict[str, dict[str, Any]] = {
        "train": {"x": x, "y": y},
        "test": {"x": x[:20], "y": y[:20]},
        "nan": {"x": holed, "y": y},
        "range": {"x": x, "y": labels},
        "large": {"x": x.repeat(2, axis=1), "y": y},
        "no-y": {"x": x, "labels": y},
        "float-y": {"x": x, "y": y / 2},
        "short-y": {"x": x, "y": y[:30]},
        "empty": {"x": x[:0], "y": y[:0]},
        "words": {"x": x.astype(str), "y": y},
        "objects": {"x": np.array([None] * 40), "y": y},
        "number": {"x": np.float32(1), "y": y},
    }
    for name, arrays in files.items():
        np.savez(root / f"{name}.npz", **arrays)
    np.save(root / "single.npy", x)
    (root / "noise.npz").write_bytes(rng.bytes(1000))
    (root / "cut.npz").write_bytes((root / "train.npz").read_bytes()[:-100])
