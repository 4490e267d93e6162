"""The networks that are adapted: pretrained ResNet-8 and a MobileNet on CIFAR-10, and the digits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import keras
import numpy as np
import numpy.typing as npt

from benchmarks.harness.mobilenet import mobilenet
from benchmarks.harness.worker import RESNET8, TEST, TRAIN
from executors.data import Dataset
from executors.readers.builtin import read_builtin
from executors.sources.keras.builtin import builtin_source
from executors.sources.keras.loading import load_keras
from executors.structure.signature import output_names
from executors.training.batch_norm import quick_batch_norms

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

#: Training images of CIFAR-10; the rest of the file is validation data.
_TRAINED: Final = 12_500


@dataclass(frozen=True)
class Subject:
    """A trained network with data that it was not trained on.

    Attributes:
        validation: Data by which its package is calibrated.
        streamed: Images of the streams, with their classes.
        held_out: Other images, with their classes.
        largest: The largest value of a pixel.
    """

    name: str
    model: keras.Model
    validation: Dataset
    streamed: tuple[Images, Labels]
    held_out: tuple[Images, Labels]
    largest: float


def resnet8(data: Path, seed: int, *, epochs: int) -> Subject:
    """Return MLPerf Tiny's ResNet-8, tuned on this copy of CIFAR-10."""
    model = load_keras(data / RESNET8)
    _train_on_cifar10(model, data, seed, rate=1e-3, epochs=epochs)
    return _on_cifar10("resnet8", model, data, seed)


def small_mobilenet(data: Path, seed: int, *, epochs: int) -> Subject:
    """Return a small MobileNet, trained from scratch, the same for all seeds."""
    return _on_cifar10("mobilenet", _trained_mobilenet(data, 4 * epochs), data, seed)


@cache
def _trained_mobilenet(data: Path, epochs: int) -> keras.Model:
    model = mobilenet()
    _train_on_cifar10(model, data, 0, rate=3e-3, epochs=epochs)
    return model


def digits(data: Path | None, seed: int, *, epochs: int) -> Subject:
    """Return the built-in network of digits, calibrated on its training data."""
    model = builtin_source("digits-resnet")
    train, test = (read_builtin(f"builtin:digits-{part}") for part in ("train", "test"))
    images, labels = test["x"], test["y"]
    first, second = np.split(np.random.default_rng(seed).permutation(len(images)), [len(images) // 2])
    return Subject(
        "digits",
        model,
        _dataset(model, train["x"], train["y"]),
        (images[first], labels[first]),
        (images[second], labels[second]),
        1.0,
    )


SUBJECTS: Final[Mapping[str, Callable[..., Subject]]] = {
    "resnet8": resnet8,
    "mobilenet": small_mobilenet,
    "digits": digits,
}


def _train_on_cifar10(model: keras.Model, data: Path, seed: int, *, rate: float, epochs: int) -> None:
    images, labels = _images(data / TRAIN)
    keras.utils.set_random_seed(seed)
    with quick_batch_norms(model):
        _train(model, images[:_TRAINED], labels[:_TRAINED], seed, rate=rate, epochs=epochs)


def _on_cifar10(name: str, model: keras.Model, data: Path, seed: int) -> Subject:
    (images, labels), (tested, answers) = _images(data / TRAIN), _images(data / TEST)
    first, second = np.split(np.random.default_rng(seed).permutation(len(tested)), 2)
    return Subject(
        name,
        model,
        _dataset(model, images[_TRAINED:], labels[_TRAINED:]),
        (tested[first], answers[first]),
        (tested[second], answers[second]),
        255.0,
    )


def _images(file: Path) -> tuple[Images, Labels]:
    with np.load(file) as arrays:
        return arrays["x"].astype(np.float32), arrays["y"].astype(np.int64)


def _train(
    model: keras.Model, images: Images, labels: Labels, seed: int, *, rate: float, epochs: int
) -> None:
    """Train with images that are mirrored at random."""
    steps = epochs * len(images) // 64
    schedule = keras.optimizers.schedules.CosineDecay(rate, steps)
    model.compile(keras.optimizers.Adam(schedule), "sparse_categorical_crossentropy")
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        mirrored = rng.random(len(images)) < 0.5
        images[mirrored] = images[mirrored, :, ::-1]
        model.fit(images, labels, batch_size=64, verbose=0)


def _dataset(model: keras.Model, images: Images, labels: Labels) -> Dataset:
    return Dataset({model.inputs[0].name: images}, {output_names(model)[0]: labels})
