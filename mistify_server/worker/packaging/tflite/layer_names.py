"""The original layers of the parts of a converted network."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.tflite.combining import shape_of

#: Suffix that TensorFlow adds to a repeated name.
_REPEATED: Final = re.compile(r"_\d+$")

#: Separators of the parts of a name, and of the index of an output.
_PARTS: Final = re.compile(r"[/;:]")


def layer_at(place: str, layers: Collection[str], *, repeated: bool = False) -> str | None:
    """Return the original layer of a part of a converted network; None if its name does not tell.

    Args:
        place: TensorFlow's name for it, such as `functional_1/conv_2/convolution`; several names joined by
            `;` where operations were fused.
        layers: Names of the network's layers.
        repeated: Whether `conv_1` rather is a repeated `conv` than the layer of this name.
    """
    for part in _PARTS.split(place):
        without_suffix = _REPEATED.sub("", part)
        for name in (without_suffix, part) if repeated else (part, without_suffix):
            if name in layers:
                return name
    return None


def are_repeated(places: Iterable[str], layers: Collection[str]) -> bool:
    """Check whether TensorFlow has added suffixes to the names of most layers in a converted network."""
    parts = {part for place in places for part in _PARTS.split(place)}
    own = {part for part in parts if part in layers}
    added = {part for part in parts - own if _REPEATED.sub("", part) in layers}
    return len(added) > len(own)


def float_kernels(network: bytes, layers: Collection[str]) -> dict[str, int]:
    """Return the sizes of float32 kernels in bytes, by layer or else operator.

    Args:
        network: A `.tflite`.
        layers: Names of the network's layers.
    """
    kept: dict[str, int] = {}
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(network))
    graph = model.subgraphs[0]
    repeated = are_repeated((tensor.name.decode() for tensor in graph.tensors), layers)
    for operator in graph.operators:
        written = graph.tensors[operator.outputs[0]]
        for kernel, size in _float_kernels(model, graph, operator):
            # A tensor that is an output of the network has the output's name.
            names = (tensor.name.decode() for tensor in (written, kernel))
            own = (layer_at(name, layers, repeated=repeated) for name in names)
            name = next(filter(None, own), flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex))
            kept[name] = kept.get(name, 0) + size
    return kept


def _float_kernels(model: Any, graph: Any, operator: Any) -> Iterator[tuple[Any, int]]:
    """Yield the float32 kernels of an operator with their sizes in bytes."""
    for tensor in (graph.tensors[index] for index in operator.inputs if index >= 0):
        stored = model.buffers[tensor.buffer].data
        axes = sum(size > 1 for size in shape_of(tensor))
        if stored is not None and axes > 1 and tensor.type == schema.TensorType.FLOAT32:
            yield tensor, len(stored)
