"""Inputs of an ONNX network, with channels last where it treats them as images or signals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import keras
from onnx import TensorProto

from executors.inspection.errors import invalid
from executors.sources.onnx.graph import Graph
from executors.sources.onnx.names import usable
from executors.sources.onnx.values import Value
from mistify.parsing.validation import unknown_name

#: Operators that treat axis 1 as channels.
_WITH_CHANNELS: Final = frozenset([
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool",
    "GlobalMaxPool", "InstanceNormalization", "MaxPool", "Resize", "SpaceToDepth", "Upsample",
])  # fmt: skip

#: Operators after which axis 1 has the same meaning.
_KEEPING: Final = frozenset([
    "Add", "Cast", "Clip", "Concat", "Div", "Dropout", "Gather", "Identity", "Mul", "Pad", "Relu",
    "Slice", "Split", "Sub",
])  # fmt: skip

_TYPES: Final = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float32",
    TensorProto.INT8: "int32",
    TensorProto.UINT8: "int32",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int32",
}


@dataclass(frozen=True)
class Input:
    """An input of a network.

    Attributes:
        name: Its name in ONNX.
        value: Its Keras tensor, with the place of each ONNX axis.
        batch: The batch size of the file; None if it is free.
        kind: The type of its entries in ONNX.
    """

    name: str
    value: Value
    batch: int | None
    kind: int


def network_inputs(path: Path, graph: Graph, sizes: Mapping[str, Sequence[int]]) -> list[Input]:
    """Return the inputs of a network.

    Args:
        sizes: Input -> its sizes without the batch, in ONNX's order.

    Raises:
        MistifyError: INVALID_MODEL if sizes are free and not given, or given for other inputs than those of
            the network.
    """
    names = [each.name for each in graph.inputs]
    for name in sizes:
        if name not in names:
            expected, fix = unknown_name(name, names)
            raise invalid(path, f"sizes of an input {name!r}", expected, fix)
    return [_input(path, graph, each, sizes.get(each.name)) for each in graph.inputs]


def _input(path: Path, graph: Graph, info: Any, given: Sequence[int] | None) -> Input:
    kind = info.type.tensor_type
    sizes = kind.shape.dim
    declared = [size.dim_value if size.HasField("dim_value") else size.dim_param or "?" for size in sizes]
    dtype = _TYPES.get(kind.elem_type)
    if dtype is None or not declared:
        raise invalid(
            path, f"an input {info.name!r} of shape {declared} and type {kind.elem_type}",
            "numbers with a batch as their first axis", "export the model with such inputs",
        )  # fmt: skip
    own = [size if isinstance(size, int) and size > 0 else None for size in declared]  # some tools write -1
    batch, shape = own[0], own[1:]
    if given is not None:
        fits = len(given) == len(shape) and all(
            size in (None, wanted) for size, wanted in zip(shape, given, strict=True)
        )
        if not fits:
            raise invalid(
                path, f"sizes {','.join(map(str, given))} of the input {info.name!r}",
                f"sizes that fit {declared} without the batch", "write those of ONNX, channels first",
            )  # fmt: skip
        shape = list(given)
    if None in shape:
        example = ",".join(str(size or 224) for size in shape)
        raise invalid(
            path, f"an input {info.name!r} with free sizes {declared}", "fixed sizes, except for the batch",
            f'give them in its name: "{path.name}?{info.name}={example}"',
        )  # fmt: skip
    rank = len(declared)
    axes = (
        (0, *range(2, rank), 1)
        if rank in (3, 4, 5) and _has_channels(graph, info.name)
        else tuple(range(rank))
    )
    placed = [shape[axis - 1] for axis in axes[1:]]
    tensor = keras.Input(placed, name=usable(info.name), dtype=dtype)
    return Input(info.name, Value(tensor, axes), batch, kind.elem_type)


def _has_channels(graph: Graph, name: str) -> bool:
    """Check whether axis 1 of an input is its channels, by the operators that read it."""
    found = {name}
    for node in graph.nodes:
        if found.intersection(node.input[:1] if node.op_type != "Concat" else node.input):
            if node.op_type in _WITH_CHANNELS:
                return True
            if node.op_type in _KEEPING:
                found.update(node.output)
    return False
