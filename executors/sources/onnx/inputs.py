"""Inputs of an ONNX network, with channels last where it treats them as images or signals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
from onnx import TensorProto, helper

from executors.inspection.errors import invalid
from executors.sources.onnx.batch import Array
from executors.sources.onnx.graph import Graph
from executors.sources.onnx.kinds import KERAS_TYPES
from executors.sources.onnx.values import Value
from executors.structure.signature import usable_input_name
from mistify.parsing.validation import unknown_name

#: Operators that treat axis 1 as channels.
_WITH_CHANNELS: Final = frozenset([
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool",
    "GlobalMaxPool", "InstanceNormalization", "MaxPool", "Resize", "SpaceToDepth", "Upsample",
])  # fmt: skip

_RECURRENT: Final = frozenset(["GRU", "LSTM", "RNN"])

#: Operators after which axis 1 has the same meaning.
_KEEPING: Final = frozenset([
    "Add", "Cast", "Clip", "Concat", "Div", "Dropout", "Gather", "Identity", "Mul", "Pad", "Relu",
    "Slice", "Split", "Sub",
])  # fmt: skip


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
    """Return the inputs of a network, without those that have no axes.

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
    infos = [each for each in graph.inputs if not _is_number(each)]
    batch = _batch_of(infos)
    return [_input(path, graph, info, sizes.get(info.name), batch) for info in infos]


def constant_inputs(path: Path, graph: Graph, sizes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """Return the inputs that are single numbers without axes, such as a sampling rate, with given values.

    Args:
        sizes: Input -> a single value.

    Raises:
        MistifyError: INVALID_MODEL if there is no value.
    """
    values = {}
    for info in filter(_is_number, graph.inputs):
        value = sizes.get(info.name, ())
        if len(value) != 1:
            raise invalid(
                path, f"an input {info.name!r} that is a single number", "its value as a constant",
                f'give it in the model\'s name: "{path.name}?{info.name}=1"',
            )  # fmt: skip
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        values[info.name] = np.array(value[0], dtype)
    return values


def _is_number(info: Any) -> bool:
    kind = info.type.tensor_type
    return bool(kind.HasField("shape")) and not kind.shape.dim


def _declared(info: Any) -> list[int | str]:
    """Return the sizes of an input: numbers, names, or a question mark."""
    sizes = info.type.tensor_type.shape.dim
    return [size.dim_value if size.HasField("dim_value") else size.dim_param or "?" for size in sizes]


def _batch_of(infos: Sequence[Any]) -> int | str:
    """Return the size of the batch: of the first free first axis, or else that of the first input."""
    leading = [declared[0] for declared in map(_declared, infos) if declared]
    return next((size for size in leading if isinstance(size, str)), leading[0] if leading else "?")


def _input(path: Path, graph: Graph, info: Any, requested: Sequence[int] | None, shared: int | str) -> Input:
    kind = info.type.tensor_type
    declared = _declared(info)
    dtype = KERAS_TYPES.get(kind.elem_type)
    if dtype is None or not declared or 0 in declared:
        named = TensorProto.DataType.Name(kind.elem_type)
        known = ", ".join(map(TensorProto.DataType.Name, KERAS_TYPES))
        raise invalid(
            path, f"an input {info.name!r} of shape {declared} and type {named}",
            f"a batch of entries of one of the types {known}", "export the model with such inputs",
        )  # fmt: skip
    own = [size if isinstance(size, int) and size > 0 else None for size in declared]  # some tools write -1
    batch = 1 if _has_steps(graph, info.name) else _batch_axis(declared, own, shared)
    if requested is not None and not _fits(requested, own, batch):
        batch = 0
        if not _fits(requested, own, batch):
            raise invalid(
                path, f"sizes {','.join(map(str, requested))} of the input {info.name!r}",
                f"sizes that fit {declared} without the batch", "write those of ONNX, channels first",
            )  # fmt: skip
    shape = [*own[:batch], *own[batch + 1 :]] if requested is None else list(requested)
    if None in shape:
        example = ",".join(str(size or 224) for size in shape)
        raise invalid(
            path, f"an input {info.name!r} with free sizes {declared}", "fixed sizes, except for the batch",
            f'give them in its name: "{path.name}?{info.name}={example}"',
        )  # fmt: skip
    axes = _placed(graph, info.name, len(declared), batch)
    by_axis = [*shape[:batch], None, *shape[batch:]]
    tensor = keras.Input([by_axis[axis] for axis in axes[1:]], name=usable_input_name(info.name), dtype=dtype)
    return Input(info.name, Value(tensor, axes), own[batch], kind.elem_type)


def _batch_axis(declared: Sequence[int | str], own: Sequence[int | None], shared: int | str) -> int:
    """Return the axis of an input's batch: the first, unless it is fixed and another one is the batch.

    That is the only one with the size or name of the other inputs' batch, or else the only free one if they
    have a free batch.
    """
    same = [axis for axis, size in enumerate(declared) if size == shared and size != "?"]
    free = [axis for axis, size in enumerate(own) if size is None]
    if own[0] is None or 0 in same:
        return 0
    if len(same) == 1:
        return same[0]
    return free[0] if len(free) == 1 and own[0] > 1 and isinstance(shared, str) else 0


def _has_steps(graph: Graph, name: str) -> bool:
    """Check whether an input is the data or state of a recurrent layer, whose batch is the second axis."""
    return any(
        name in (*node.input[:1], *node.input[5:7])
        and not any(attribute.name == "layout" and attribute.i for attribute in node.attribute)
        for node in graph.nodes
        if node.op_type in _RECURRENT
    )


def _fits(requested: Sequence[int], own: Sequence[int | None], batch: int) -> bool:
    others = [*own[:batch], *own[batch + 1 :]]
    return len(requested) == len(others) and all(
        size in (None, wanted) for size, wanted in zip(others, requested, strict=True)
    )


def _placed(graph: Graph, name: str, rank: int, batch: int) -> tuple[int, ...]:
    """Return the order of an input's axes: the batch first, and channels last if it has any."""
    if batch == 0 and rank in (3, 4, 5) and _has_channels(graph, name):
        return (0, *range(2, rank), 1)
    return (batch, *(axis for axis in range(rank) if axis != batch))


def _has_channels(graph: Graph, name: str) -> bool:
    """Check whether axis 1 of an input is its channels, by the operators that read it."""
    same = {name}
    for node in graph.nodes:
        if same.intersection(node.input[:1] if node.op_type != "Concat" else node.input):
            if node.op_type in _WITH_CHANNELS:
                return True
            if node.op_type in _KEEPING:
                same.update(node.output)
    return False
