"""Inputs and outputs of an ONNX file, as packages record them."""

from collections.abc import Mapping

import numpy as np
from onnx import helper

from executors.sources.contract import Range
from executors.sources.onnx.graph import Graph
from executors.sources.onnx.names import usable
from executors.sources.onnx.reader import Translation
from executors.sources.onnx.values import Value
from executors.structure import keras_internals
from executors.structure.signature import usable_input_name
from mistify.package.source import SourceInterface, SourceTensor


def interface_of(translation: Translation, graph: Graph) -> SourceInterface:
    """Return the names, layouts and types of a graph's inputs and outputs."""
    inputs = (
        _tensor(usable_input_name(each.name), each.name, each.value, each.kind) for each in translation.inputs
    )
    kinds = {output.name: output.type.tensor_type.elem_type for output in graph.proto.output}
    outputs = (_tensor(usable(name), name, value, kinds[name]) for name, value in translation.outputs.items())
    return SourceInterface(inputs=tuple(inputs), outputs=tuple(outputs))


def ranges_of(translation: Translation, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return the ranges of layers' outputs.

    Args:
        ranges: Tensor of the graph -> its range.
    """
    values = {**translation.values, **translation.outputs}
    makers = {name: keras_internals.maker(values[name].tensor).name for name in ranges if name in values}
    return {layer: ranges[name] for name, layer in makers.items()}


def _tensor(name: str, source: str, value: Value, kind: int) -> SourceTensor:
    axes = tuple(value.axes.index(axis) for axis in range(value.rank))
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name if kind else value.tensor.dtype
    return SourceTensor(name=name, source=source, axes=axes, dtype=dtype)
