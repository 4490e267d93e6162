"""The layers that the parts of a converted network come from."""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

#: What TensorFlow adds to a name that it has already given.
_REPEATED: Final = re.compile(r"_\d+$")

#: What stands between the parts of a name, and before the number of an output.
_PARTS: Final = re.compile(r"[/;:]")


def layer_at(place: str, layers: Collection[str]) -> str | None:
    """Return the layer that a part of a converted network comes from; None where its name does not tell.

    Args:
        place: The name that TensorFlow gave it, such as `functional_1/conv_2/convolution`; of what was fused,
            several with `;` between.
        layers: The names of the network's layers.
    """
    for part in _PARTS.split(place):
        for name in (part, _REPEATED.sub("", part)):
            if name in layers:
                return name
    return None


def float_kernels(network: bytes, layers: Collection[str]) -> dict[str, int]:
    """Return the bytes of the kernels that are stored in float32, by the layer, or else the operator.

    Args:
        network: A `.tflite`.
        layers: The names of its layers.
    """
    kept: dict[str, int] = {}
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(network))
    graph = model.subgraphs[0]
    for operator in graph.operators:
        size = sum(_float_kernels(model, graph, operator))
        if size:
            place = graph.tensors[operator.outputs[0]].name.decode()
            name = layer_at(place, layers) or flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex)
            kept[name] = kept.get(name, 0) + size
    return kept


def _float_kernels(model: Any, graph: Any, operator: Any) -> Iterator[int]:
    for tensor in (graph.tensors[index] for index in operator.inputs if index >= 0):
        stored = model.buffers[tensor.buffer].data
        axes = sum(int(size) > 1 for size in (() if tensor.shape is None else tensor.shape))
        if stored is not None and axes > 1 and tensor.type == schema.TensorType.FLOAT32:
            yield len(stored)
