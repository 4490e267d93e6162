"""Operations of `keras.ops` without an equivalent layer, and layers that fix all channels."""

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from numbers import Real
from typing import Any

import keras
import numpy as np

from executors.structure.channels import ChannelSpace, Ids
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Node, Shape, TensorRef
from executors.structure.handlers.base import LayerHandler, elements, over, positions, register
from executors.structure.keras_internals import core as _core
from executors.structure.keras_internals import math as _math
from executors.structure.keras_internals import nn as _nn
from executors.structure.keras_internals import numpy as _numpy
from executors.structure.litert_operations import SERVED
from executors.structure.served_dense import SERVED_DENSE
from mistify.costs.operators import Operation, OperatorKind

layers = keras.layers


class KeepsChannels(LayerHandler):
    """A layer with fixed channels."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Fix the channels."""
        for channels in inputs:
            space.fix(channels)
        return space.fixed((output[-1] or 0) if output else 0)


@register(
    *(_numpy.All, _numpy.Any, _numpy.Argmax, _numpy.Argmin, _numpy.BroadcastTo, _numpy.Concatenate),
    *(_numpy.Equal, _numpy.FullLike, _numpy.Greater),
    *(_numpy.GreaterEqual, _numpy.Less, _numpy.LessEqual, _numpy.LogicalAnd, _numpy.LogicalNot),
    *(_numpy.LogicalOr, _numpy.Moveaxis, _numpy.NotEqual, _numpy.OnesLike),
    *(_numpy.Reshape, _numpy.Stack, _numpy.Swapaxes, _numpy.Take),
    *(_numpy.Transpose, _numpy.Tril, _numpy.Triu, _numpy.Where, _numpy.ZerosLike),
    *(_numpy.Mod, _numpy.Power, _nn.LogSoftmax, _nn.OneHot, _nn.Softmax, _core.Slice, _math.Logsumexp),
    *(served for layer, served in SERVED.items() if layer not in SERVED_DENSE),
)
class Rearrangement(KeepsChannels):
    """Comparisons, rearrangements and broadcasting: no products of weights and channels."""


@register(
    *(_numpy.Add, _numpy.Divide, _numpy.Maximum, _numpy.Minimum, _numpy.Multiply, _numpy.Subtract),
    *(_numpy.FloorDivide, _numpy.TrueDivide),
)
class Arithmetic(KeepsChannels):
    """Elementwise arithmetic with two tensors of one shape, or with a number."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Tie the channels if both tensors have all of them; fix those that are broadcast."""
        with_number = len(inputs) == 1 and any(isinstance(arg, Real) for arg in node.args)
        alike = len(inputs) == len(node.args) and len(set(map(len, inputs))) == 1
        if not with_number and not alike:
            return super().couple(node, inputs, output, space)
        for channels in inputs[1:]:
            space.tie(inputs[0], channels)
        return inputs[0]


@register(
    *(layers.RandomBrightness, layers.RandomContrast, layers.RandomCrop, layers.RandomFlip),
    *(layers.RandomRotation, layers.RandomTranslation, layers.RandomZoom),
)
class AugmentationHandler(KeepsChannels):
    """Image augmentation, which is only active in training."""


@register(layers.Masking, layers.UnitNormalization)
class WholeVectors(KeepsChannels):
    """Layers that read all channels at once."""


@register(_numpy.Matmul)
class ProductHandler(KeepsChannels):
    """A product of two tensors, or with a constant: the last axis of the second factor is not summed over."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass on the channels of the second factor, and fix those of the first."""
        if not isinstance(node.args[-1], TensorRef):
            return super().couple(node, inputs, output, space)
        *first, second = inputs
        for channels in first:
            space.fix(channels)
        return second

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Count products along the last axis of the left tensor, which is summed over."""
        return elements(output) * (_operands(node, inputs)[0][-1] or 0)

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one operator."""
        return (_product(self.multiply_adds(node, weights, inputs, output), output),)


@register(_numpy.Einsum)
class Einsum(KeepsChannels):
    """A product of tensors and constants, by subscripts."""

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Return the product of all sizes named in the subscripts, except for the batch."""
        terms = node.layer.subscripts.partition("->")[0].split(",")
        if "." in node.layer.subscripts:
            raise UnsupportedLayerError(f"{node.name!r} has an ellipsis in its subscripts; name every axis")
        sizes = {
            letter: size
            for term, shape in zip(terms, _operands(node, inputs), strict=True)
            for letter, size in zip(term, shape, strict=True)
        }
        return prod(size or 1 for size in sizes.values())

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one operator, for which the tensors are transposed."""
        product = _product(self.multiply_adds(node, weights, inputs, output), output)
        return (*(over(OperatorKind.COPY, shape) for shape in (*inputs, output)), product)


def _operands(node: Node, inputs: Sequence[Shape]) -> list[Shape]:
    """Return the shapes of the factors, including constants."""
    tensors = iter(inputs)
    return [next(tensors) if isinstance(arg, TensorRef) else tuple(np.shape(arg)) for arg in node.args]


def _product(multiply_adds: int, output: Shape) -> Operation:
    """Return a product of tensors with the given output shape."""
    made = elements(output)
    return Operation(OperatorKind.PRODUCT, positions(output), multiply_adds // max(made, 1), output[-1] or 1)


@register(
    *(_numpy.Absolute, _numpy.Ceil, _numpy.Clip, _numpy.Cos, _numpy.Exp, _numpy.Floor, _numpy.Log),
    *(_numpy.Negative, _numpy.Reciprocal, _numpy.Round, _numpy.Sign, _numpy.Sin, _numpy.Sqrt, _numpy.Square),
    *(_math.Erf, _math.Rsqrt),
    *(_core.Cast, _core.ConvertToTensor, _core.StopGradient),
    *(_nn.Celu, _nn.Elu, _nn.Gelu, _nn.HardSigmoid, _nn.HardSilu, _nn.HardTanh, _nn.LeakyRelu),
    *(_nn.LogSigmoid, _nn.Relu, _nn.Relu6, _nn.Selu, _nn.Sigmoid, _nn.Silu, _nn.Softplus, _nn.Softsign),
    _numpy.Tanh,
)
class Elementwise(LayerHandler):
    """Output channel c depends only on input channel c."""

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return a function of every element."""
        return (over(OperatorKind.ACTIVATION, output),)

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on."""
        return inputs[0]


class PassesLastAxis(KeepsChannels):
    """Operations that pass the channels on if they stay the last axis, and fix them otherwise."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on, or fix them."""
        if self.leaves_last(node, len(output)):
            return inputs[0]
        return super().couple(node, inputs, output, space)

    @abstractmethod
    def leaves_last(self, node: Node, rank: int) -> bool:
        """Check whether the last of the output's `rank` axes is the unchanged last axis of the input."""


@register(
    _numpy.Amax,
    _numpy.Amin,
    _numpy.Max,
    _numpy.Mean,
    _numpy.Min,
    _numpy.Prod,
    _numpy.Std,
    _numpy.Sum,
    _numpy.Var,
)
class Reduction(PassesLastAxis):
    """One value for many positions."""

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one operator; if channels are summed, a pass over them."""
        if positions(output) > 1 or output[-1] != inputs[0][-1]:
            return (over(OperatorKind.ADD, inputs[0]),)
        channels = output[-1] or 1
        return (Operation(OperatorKind.MEAN, 1, channels, channels, 1, positions(inputs[0])),)

    def leaves_last(self, node: Node, rank: int) -> bool:
        """Check that the last axis is not reduced."""
        axes = _axes(node.layer.axis)
        before = rank if node.layer.keepdims else rank + len(axes)
        return bool(axes) and all(axis % before != before - 1 for axis in axes)


@register(_numpy.Repeat)
class Repetition(PassesLastAxis):
    """Copies of each position."""

    def leaves_last(self, node: Node, rank: int) -> bool:
        """Check that channels are not repeated."""
        return node.layer.axis is not None and node.layer.axis % rank != rank - 1


@register(_numpy.Tile)
class Tiling(PassesLastAxis):
    """Copies of all positions."""

    def leaves_last(self, node: Node, rank: int) -> bool:
        """Check that channels are not repeated."""
        return bool(np.ravel(node.layer.repeats)[-1] == 1)


@register(_numpy.Cumprod, _numpy.Cumsum, _numpy.Flip, _numpy.Roll)
class AlongPositions(PassesLastAxis):
    """Positions in another order, or their sums and products up to each one."""

    def leaves_last(self, node: Node, rank: int) -> bool:
        """Check that channels stay apart and in order."""
        axes = _axes(node.layer.axis)
        return bool(axes) and all(axis % rank != rank - 1 for axis in axes)


@register(_numpy.Pad)
class Padding(PassesLastAxis):
    """Positions around others."""

    def leaves_last(self, node: Node, rank: int) -> bool:
        """Check that no channels are added."""
        return tuple(node.layer.pad_width[-1]) == (0, 0)


@register(_numpy.ExpandDims)
class ExpandDims(PassesLastAxis):
    """A new axis of size 1."""

    def leaves_last(self, node: Node, rank: int) -> bool:
        """Check that the new axis is not the last."""
        return all(axis % rank != rank - 1 for axis in _axes(node.layer.axis))


@register(_numpy.Squeeze)
class Squeeze(PassesLastAxis):
    """Removal of axes of size 1."""

    def leaves_last(self, node: Node, rank: int) -> bool:
        """Check that the last axis is not removed."""
        axes = _axes(node.layer.axis)
        before = rank + len(axes)
        return bool(axes) and all(axis % before != before - 1 for axis in axes)


@register(_numpy.GetItem)
class GetItem(PassesLastAxis):
    """Selection of positions."""

    def leaves_last(self, node: Node, rank: int) -> bool:
        """Check that no channels are selected, and that the selected axis is not moved to the end."""
        key = node.args[1] if len(node.args) > 1 else node.kwargs["key"]
        keys = list(key) if isinstance(key, tuple | list) else [key]
        if Ellipsis in keys:
            return keys[-1] in (Ellipsis, slice(None))
        picked = [item for item in keys if item is not None]
        before = rank + sum(isinstance(item, int) for item in keys) - keys.count(None)
        return len(picked) < before or keys[-1] == slice(None)


def _axes(axis: Any) -> list[int]:
    """Return axes as a list; empty for all axes."""
    if axis is None:
        return []
    return [axis] if isinstance(axis, int) else list(axis)
