"""What a manifest says of `train.tflite`: what it trains, and where the weights stand in `serve.tflite`."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from mistify.config.tuning import Part

TRAIN: Final = "train.tflite"

#: Signatures of the training network.
TRAIN_STEP: Final = "train"
ADAPT_STEP: Final = "adapt"
INFER: Final = "infer"
EVALUATE: Final = "evaluate"
WEIGHTS: Final = "weights"
RESTORE: Final = "restore"
RESET: Final = "reset"

#: What `train` takes beside examples: how much the teacher counts, and how far the step goes.
KD_WEIGHT: Final = "kd_weight"
LEARNING_RATE: Final = "learning_rate"
Array = npt.NDArray[np.float32]
Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class WeightPlace(_Record):
    """Where a weight, or a part of it, stands in `serve.tflite`, as little-endian float32.

    Attributes:
        offset: of the first byte in the file.
        start: where the part begins, for each dimension of the weight.
        stop: where it ends.
        axes: the weight's dimensions in the order in which the file has them.
        factor: what the file has of each value.
    """

    offset: Count
    start: tuple[Count, ...]
    stop: tuple[Count, ...]
    axes: tuple[Count, ...]
    factor: float = 1.0

    def put(self, weight: Array, network: bytearray) -> None:
        """Write a weight into a network at this place."""
        part = weight[tuple(map(slice, self.start, self.stop))] * np.float32(self.factor)
        content = np.ascontiguousarray(part.transpose(self.axes), "<f4").tobytes()
        network[self.offset : self.offset + len(content)] = content

    def get(self, network: bytes, weight: Array) -> None:
        """Read what stands in a network at this place into the weight."""
        sizes = [stop - start for start, stop in zip(self.start, self.stop, strict=True)]
        stored = [sizes[axis] for axis in self.axes]
        part = np.frombuffer(network, "<f4", math.prod(stored), self.offset).reshape(stored)
        place = tuple(map(slice, self.start, self.stop))
        weight[place] = part.transpose(np.argsort(self.axes)) / np.float32(self.factor)


class OutputKind(StrEnum):
    """What an output of a network tells."""

    #: Probabilities of classes.
    SOFTMAX = "softmax"
    #: The same before the softmax.
    LOGITS = "logits"
    #: How likely a yes is.
    SIGMOID = "sigmoid"
    #: The same before the sigmoid.
    LOGIT = "logit"
    FIGURES = "figures"

    def predictions(self, output: npt.ArrayLike) -> Array:
        """What a teacher says of examples: probabilities, or figures.

        Args:
            output: what its network has given, of any shape; classes are along the last axis.
        """
        told = np.asarray(output, np.float32)
        if self is OutputKind.LOGITS:
            powers = np.exp(told - told.max(axis=-1, keepdims=True))
            return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)
        if self is OutputKind.LOGIT:
            return np.asarray(0.5 + 0.5 * np.tanh(0.5 * told), np.float32)
        return told


class TrainedWeight(_Record):
    """A weight that is trained.

    Attributes:
        name: of the layer and of the weight in it, such as "dense/kernel".
        tensor: its name in the signatures `weights` and `restore`.
        shape: as it is trained.
        places: where it stands in `serve.tflite`.
    """

    name: str
    tensor: str
    shape: tuple[Count, ...]
    places: tuple[WeightPlace, ...]


class Training(_Record):
    """What `train.tflite` trains, and how.

    Attributes:
        trainable: which part of the network was asked for.
        optimizer: "sgd" or "adam".
        batch_size: the examples of a step of `train` and `adapt`; the others take any number.
        adapts: whether there is `adapt`, which needs outputs that tell classes, and scales or shifts.
        targets: output -> the tensor that `train` and `evaluate` take its targets by.
        teachers: output -> the tensor that `train` takes a teacher's probabilities by.
        kinds: output -> what it tells.
        weights: all weights that are trained.
    """

    trainable: Part
    optimizer: Literal["sgd", "adam"]
    batch_size: Annotated[int, Field(ge=1)]
    adapts: bool
    targets: dict[str, str]
    teachers: dict[str, str]
    kinds: dict[str, OutputKind]
    weights: tuple[TrainedWeight, ...]

    @property
    def has_answers(self) -> bool:
        """Whether some output tells what is right or wrong: figures are neither."""
        return any(kind is not OutputKind.FIGURES for kind in self.kinds.values())


def with_weights(network: bytes, training: Training, weights: Mapping[str, Any]) -> bytes:
    """A `serve.tflite` with other weights, by their names; those that are not given stay.

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
    """The weights that stand in a `serve.tflite`, by their names: what `with_weights` has written."""
    found = {}
    for weight in training.weights:
        found[weight.name] = np.zeros(weight.shape, np.float32)
        for place in weight.places:
            place.get(network, found[weight.name])
    return found
