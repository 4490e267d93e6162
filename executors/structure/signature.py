"""The signature of a model: names, shapes and types of its inputs and outputs."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

import keras

from executors.structure import keras_internals

layers = keras.layers

Shape: TypeAlias = tuple[int | None, ...]

#: Names that LiteRT keeps for inputs, and what it does not keep in others.
_INPUT_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9_]+")

#: Layers that do not change an output except for its shape.
_SHAPING = (
    *(layers.Reshape, layers.Flatten, layers.Dropout),
    *(layers.Identity, layers.ActivityRegularization),
)


class Activation(Enum):
    """The last activation of a model's output, as far as it matters for training."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
    NONE = "none"


@dataclass(frozen=True)
class Tensor:
    """An input or output: its name, and its shape without the batch dimension (None where it is free)."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Input(Tensor):
    """An input with its type.

    Attributes:
        ids: Size of the lookup table for token ids; None for other inputs.
        channels_first: Whether data may have channels first, which are moved to the end.
    """

    dtype: str
    ids: int | None = None
    channels_first: bool = False

    @property
    def data_shapes(self) -> tuple[Shape, ...]:
        """The shapes that an example may have in data; the source's comes first."""
        first = ((self.shape[-1], *self.shape[:-1]),) if self.channels_first else ()
        return (*first, self.shape)

    @property
    def figures(self) -> bool:
        """True if the input takes figures rather than token ids, which Keras may also take as floats."""
        return "float" in self.dtype and self.ids is None


@dataclass(frozen=True)
class Output(Tensor):
    """An output with its activation, named after the layer that makes it."""

    activation: Activation


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model, in order."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]


def with_channels_first(signature: Signature, names: Collection[str]) -> Signature:
    """Return a signature whose inputs with these names may have channels first in data."""
    inputs = (replace(each, channels_first=each.name in names) for each in signature.inputs)
    return replace(signature, inputs=tuple(inputs))


def signature_of(model: keras.Model) -> Signature:
    """Return the inputs and outputs of a functional or sequential model."""
    inputs = (
        Input(tensor.name, tuple(tensor.shape[1:]), tensor.dtype, _ids(tensor)) for tensor in model.inputs
    )
    outputs = (
        Output(name, tuple(tensor.shape[1:]), _activation(tensor))
        for name, tensor in zip(output_names(model), model.outputs, strict=True)
    )
    return Signature(tuple(inputs), tuple(outputs))


def usable_input_name(name: str) -> str:
    """Return a name that LiteRT accepts for an input: `input.1` becomes `input_1`."""
    if _INPUT_NAME.fullmatch(name):
        return name
    usable = _UNUSABLE.sub("_", name).strip("_")
    return usable if usable[:1].isalpha() else f"input_{usable}".rstrip("_")


def input_names(model: keras.Model) -> list[str]:
    """Return the names of a model's inputs, in order."""
    return [tensor.name for tensor in model.inputs]


def output_names(model: keras.Model) -> list[str]:
    """Return the names of a model's outputs, in order: the names of the layers that make them.

    Outputs of a layer that is called several times are numbered: `score`, `score_2`.
    """
    return _numbered(keras_internals.maker(tensor).name for tensor in model.outputs)


def _numbered(names: Iterable[str]) -> list[str]:
    numbered: list[str] = []
    for name in names:
        unique, count = name, 1
        while unique in numbered:
            count += 1
            unique = f"{name}_{count}"
        numbered.append(unique)
    return numbered


def _ids(tensor: keras.KerasTensor) -> int | None:
    readers = keras_internals.readers(tensor)
    return min((layer.input_dim for layer in readers if isinstance(layer, layers.Embedding)), default=None)


def _activation(tensor: keras.KerasTensor) -> Activation:
    call = keras_internals.making_call(tensor)
    last = call.operation
    function = getattr(last, "activation", None)
    by_last_axis = getattr(last, "axis", None) in (-1, len(tensor.shape) - 1)
    if function is keras.activations.softmax or (
        isinstance(last, layers.Softmax | keras_internals.nn.Softmax) and by_last_axis
    ):
        return Activation.SOFTMAX
    if function is keras.activations.sigmoid or isinstance(last, keras_internals.nn.Sigmoid):
        return Activation.SIGMOID
    nothing = isinstance(last, layers.Activation) and function is keras.activations.linear
    if isinstance(last, _SHAPING) or nothing:
        (before,) = call.arguments.keras_tensors
        earlier = _activation(before)
        if earlier is not Activation.SOFTMAX or before.shape[-1] == tensor.shape[-1]:
            return earlier
    return Activation.NONE
