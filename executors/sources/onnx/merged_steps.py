"""Operators on the steps of a sequence as examples of the batch, as in a CNN on each frame of a video.

Such networks reshape `[batch, steps, channels, ...]` to `[batch * steps, channels, ...]`. The layers that an
operator becomes are then applied to each step.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import keras

from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Argument, Handler, Node
from executors.sources.onnx.values import Merged, Value
from executors.structure.reading.steps import applied_to_steps

#: Operators that treat the examples of the first axis separately.
_OF_EXAMPLES: Final = frozenset([
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "Flatten",
    "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "MaxPool",
    "PRelu", "Pad", "Resize", "SpaceToDepth", "Upsample",
])  # fmt: skip


def treats_steps_as_examples(node: Node, arguments: Sequence[Argument]) -> bool:
    """Check whether an operator reads a tensor whose first axis merges the batch with steps."""
    first, *others = arguments
    alone = not any(isinstance(argument, Value | Merged) for argument in others)
    return (
        node.operator in _OF_EXAMPLES
        and alone
        and isinstance(first, Merged)
        and (first.axis, first.before + first.after) == (0, 1)
    )


def for_each_step(builder: Builder, node: Node, handler: Handler, arguments: Sequence[Argument]) -> Merged:
    """Return the result of an operator whose layers are applied to each step.

    Raises:
        UnsupportedNodeError: The operator cannot be built for a step.
    """
    merged, *others = arguments
    if not isinstance(merged, Merged):
        raise UnsupportedNodeError("merges the batch with another axis")
    batch = merged.value.batch
    ahead = (batch, 1 - batch)
    rest = [axis for axis in merged.value.axes if axis not in ahead]
    value = builder.laid_out(merged.value, (*ahead, *rest))
    step = keras.Input(value.tensor.shape[2:], dtype=value.tensor.dtype)
    of_step = Value(step, (0, *(axis - 1 for axis in rest)), not_negative=value.not_negative)
    made: Value = handler(builder, node, of_step, *others)
    flattened = made.flattened
    outputs = [made.tensor] if flattened is None else [made.tensor, flattened.tensor]
    tensor, *before = applied_to_steps(node.name, keras.Model(step, outputs), value.tensor)

    def placed(axes: Sequence[int]) -> tuple[int, ...]:
        return (*ahead, *(axis + 1 for axis in axes[1:]))

    result = replace(made, tensor=tensor, axes=placed(made.axes))
    if flattened is not None:
        result = replace(result, flattened=Value(before[0], placed(flattened.axes)))
    return replace(merged, value=result)
