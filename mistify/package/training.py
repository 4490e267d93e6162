"""The record of `train.tflite` in a manifest: the weights it trains, and their places in `serve.tflite`."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mistify.config.package.tuning import Part
from mistify.package.records import Record

TRAIN: Final = "train.tflite"

#: Signatures of the training network.
TRAIN_STEP: Final = "train"
ADAPT_STEP: Final = "adapt"
INFER: Final = "infer"
EVALUATE: Final = "evaluate"
WEIGHTS: Final = "weights"
RESTORE: Final = "restore"
RESET: Final = "reset"

#: Inputs of `train` in addition to the examples: the weight of the distillation loss, and the learning rate.
KD_WEIGHT: Final = "kd_weight"
LEARNING_RATE: Final = "learning_rate"
Array = npt.NDArray[np.float32]
Count = Annotated[int, Field(ge=0)]


class WeightPlace(Record):
    """The place of a weight, or of part of it, in `serve.tflite`, as little-endian float32.

    Attributes:
        offset: Position of the first byte in the file.
        start: Start index of the part in each dimension of the weight.
        stop: End index of the part in each dimension of the weight.
        axes: The weight's dimensions in the order of the file.
        factor: Factor between the weight and the values in the file.
    """

    offset: Count
    start: tuple[Count, ...]
    stop: tuple[Count, ...]
    axes: tuple[Count, ...]
    factor: float = 1.0

    def moved(self, offsets: Mapping[int, int]) -> "WeightPlace":
        """Return the place in another file, whose offsets are given by those of this one."""
        return self.model_copy(update={"offset": offsets[self.offset]})

    def put(self, weight: Array, network: bytearray) -> None:
        """Write a weight into a network at this place."""
        part = weight[tuple(map(slice, self.start, self.stop))] * np.float32(self.factor)
        content = np.ascontiguousarray(part.transpose(self.axes), "<f4").tobytes()
        network[self.offset : self.offset + len(content)] = content

    def get(self, network: bytes, weight: Array) -> None:
        """Copy the values at this place of a network into the weight."""
        sizes = [stop - start for start, stop in zip(self.start, self.stop, strict=True)]
        stored = [sizes[axis] for axis in self.axes]
        part = np.frombuffer(network, "<f4", math.prod(stored), self.offset).reshape(stored)
        place = tuple(map(slice, self.start, self.stop))
        weight[place] = part.transpose(np.argsort(self.axes)) / np.float32(self.factor)


class OutputEncoding(StrEnum):
    """How an output of a network encodes its predictions."""

    #: Probabilities of classes.
    SOFTMAX = "softmax"
    #: Logits of classes, before the softmax.
    LOGITS = "logits"
    #: The probability of yes.
    SIGMOID = "sigmoid"
    #: The logit of yes, before the sigmoid.
    LOGIT = "logit"
    FIGURES = "figures"

    def predictions(self, output: npt.ArrayLike) -> Array:
        """Return a teacher's predictions: probabilities, or numeric values.

        Args:
            output: An output of the teacher's network, of any shape; classes are along the last axis.

        Returns:
            An array of the same shape.
        """
        values = np.asarray(output, np.float32)
        if self is OutputEncoding.LOGITS:
            powers = np.exp(values - values.max(axis=-1, keepdims=True))
            return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)
        if self is OutputEncoding.LOGIT:
            return np.asarray(0.5 + 0.5 * np.tanh(0.5 * values), np.float32)
        return values


class TrainedWeight(Record):
    """A trained weight.

    Attributes:
        name: Layer and weight, such as "dense/kernel".
        tensor: Its tensor in the signatures `weights` and `restore`.
        shape: The shape in training.
        places: All places in `serve.tflite`.
    """

    name: str
    tensor: str
    shape: tuple[Count, ...]
    places: tuple[WeightPlace, ...]


class Training(Record):
    """The settings, the tensors and the weights of `train.tflite`.

    Attributes:
        trainable: The requested part of the network.
        optimizer: "sgd" or "adam".
        batch_size: Examples per step of `train` and `adapt`; the other signatures accept any number.
        adapts: Whether there is a signature `adapt`, which requires classification outputs, and scales or
            shifts.
        targets: Output -> the tensor of its targets in `train` and `evaluate`.
        teachers: Output -> the tensor of a teacher's predictions in `train`.
        kinds: Output -> the kind of its values.
    """

    trainable: Part
    optimizer: Literal["sgd", "adam"]
    batch_size: Annotated[int, Field(ge=1)]
    adapts: bool
    targets: dict[str, str]
    teachers: dict[str, str]
    kinds: dict[str, OutputEncoding]
    weights: tuple[TrainedWeight, ...]

    @property
    def has_accuracy(self) -> bool:
        """True if an output is a classification; numeric outputs are not right or wrong."""
        return any(kind is not OutputEncoding.FIGURES for kind in self.kinds.values())

    def moved(self, offsets: Mapping[int, int]) -> "Training":
        """Return the description for another file of the network.

        Args:
            offsets: Position of a constant in this file -> its position in the other one.
        """
        weights = tuple(
            weight.model_copy(update={"places": tuple(place.moved(offsets) for place in weight.places)})
            for weight in self.weights
        )
        return self.model_copy(update={"weights": weights})


def with_weights(network: bytes, training: Training, weights: Mapping[str, Any]) -> bytes:
    """Return a `serve.tflite` with some weights replaced.

    Args:
        network: Content of `serve.tflite`.
        weights: Weight -> array in the weight's shape.

    Raises:
        KeyError: There is no such weight.
        ValueError: A weight has another shape, or is not finite.
    """
    known = {weight.name: weight for weight in training.weights}
    changed = bytearray(network)
    for name, values in weights.items():
        if name not in known:
            raise KeyError(f"{name!r} is not trained; expected some of {', '.join(known)}")
        array = np.asarray(values, np.float32)
        if array.shape != known[name].shape or not np.isfinite(array).all():
            raise ValueError(
                f"{name} has the shape {array.shape}, or values that are not finite; expected finite "
                f"values of shape {known[name].shape}"
            )
        for place in known[name].places:
            place.put(array, changed)
    return bytes(changed)


def weights_in(network: bytes, training: Training) -> dict[str, Array]:
    """Return the weights in a `serve.tflite` by name, as written by `with_weights`."""
    weights = {}
    for weight in training.weights:
        weights[weight.name] = np.zeros(weight.shape, np.float32)
        for place in weight.places:
            place.get(network, weights[weight.name])
    return weights
