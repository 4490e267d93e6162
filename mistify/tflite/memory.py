"""The memory of a converted network, computed from its file (paper 4.1)."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from math import prod
from mmap import mmap
from typing import Any

from ai_edge_litert.tools import flatbuffer_utils

from mistify.costs.network import LayerCost, NetworkCost
from mistify.package.manifest import fixed_batch_signature

#: Operators that share one buffer between input and output.
IN_PLACE = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})

#: Bytes per element; types without numbers, such as RESOURCE, are missing.
ELEMENT_BYTES = {
    **dict.fromkeys(("BOOL", "INT8", "UINT8"), 1),
    **dict.fromkeys(("FLOAT16", "INT16", "UINT16"), 2),
    **dict.fromkeys(("FLOAT32", "INT32", "UINT32"), 4),
    **dict.fromkeys(("FLOAT64", "INT64", "UINT64"), 8),
}


#: Index of a tensor in a graph -> its shape.
Shapes = Mapping[int, list[int]]


def memory_bytes(
    network: bytes | mmap,
    only: Collection[str] = (),
    shapes_of: Callable[[str, int], Shapes] = lambda signature, graph: {},
) -> float:
    """Return the size of all stored constants plus the peak size of live tensors, in bytes.

    This is for one example, with the types in the file: an int8 tensor takes one byte per element, and a
    kernel that stayed in float32 takes four.

    Args:
        network: A `.tflite`.
        only: Signatures to include, among those for any batch; all if empty. Constants are summed over
            signatures; for live tensors, the largest peak counts.
        shapes_of: Returns the shapes of tensors for a signature and its graph if the file leaves them open;
            by default, the shapes that the file has for one example.
    """
    model = flatbuffer_utils.read_model_from_bytearray(network)
    graphs = {one.signatureKey.decode(): one.subgraphIndex for one in model.signatureDefs}
    fixed = {fixed_batch_signature(name) for name in graphs}
    counted = [name for name in graphs if name not in fixed and (not only or name in only)]
    reached = set(chain.from_iterable(_reachable_graphs(model, graphs[name]) for name in counted))
    buffers = {tensor.buffer for graph in reached for tensor in model.subgraphs[graph].tensors}
    constants = sum(len(model.buffers[buffer].data) for buffer in buffers if _is_stored(model, buffer))
    return float(constants + max(_peak_of_signature(model, name, graphs, shapes_of) for name in counted))


def _peak_of_signature(
    model: Any, name: str, graphs: Mapping[str, int], shapes_of: Callable[[str, int], Shapes]
) -> int:
    """Return the peak size of live tensors in bytes when a signature runs one example."""
    fixed = graphs.get(fixed_batch_signature(name))
    if fixed is not None:
        return _peak(model, fixed, {})
    return _peak(model, graphs[name], shapes_of(name, graphs[name]))


def _peak(model: Any, graph: int, shapes: Shapes) -> int:
    """Return the peak size of live tensors in a graph in bytes, without constants.

    Args:
        graph: Number of the graph.
        shapes: Shapes of its tensors where the file leaves them open.
    """
    subgraph = model.subgraphs[graph]
    constants = {index for index, one in enumerate(subgraph.tensors) if _is_stored(model, one.buffer)}
    layers: list[LayerCost] = []
    inside = 0
    for number, operator in enumerate(subgraph.operators):
        name = flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex)
        read = tuple(int(index) for index in operator.inputs if index >= 0 and index not in constants)
        if name == "DEQUANTIZE" and not read:
            constants.update(operator.outputs)  # a weight stored as float16
        inside = max([inside, *(_peak(model, called, {}) for called in _called(operator))])
        layers += [
            LayerCost(f"{name}_{number}", 0, 0, 0, read, int(output), in_place=name in IN_PLACE)
            for output in operator.outputs
            if output not in constants
        ]
    sizes = tuple(
        0 if index in constants else tensor_bytes(tensor, shapes.get(index))
        for index, tensor in enumerate(subgraph.tensors)
    )
    ends = (tuple(map(int, subgraph.inputs)), tuple(map(int, subgraph.outputs)))
    return NetworkCost(tuple(layers), sizes, *ends).peak_activations + inside


def tensor_bytes(tensor: Any, shape: list[int] | None = None) -> int:
    """Return the size of a tensor in bytes.

    Args:
        tensor: A tensor of a parsed file.
        shape: Its shape where the file leaves it open.
    """
    sizes = shape if shape is not None else [] if tensor.shape is None else list(tensor.shape)
    return ELEMENT_BYTES.get(flatbuffer_utils.type_to_name(tensor.type), 0) * int(prod(sizes))


def _is_stored(model: Any, buffer: int) -> bool:
    return model.buffers[buffer].data is not None


def _reachable_graphs(model: Any, graph: int) -> Iterator[int]:
    """Yield a graph and all graphs that its operators call."""
    yield graph
    for operator in model.subgraphs[graph].operators:
        for called in _called(operator):
            yield from _reachable_graphs(model, called)


def _called(operator: Any) -> list[int]:
    """Return the graphs that an operator calls, for a condition or loop."""
    options = vars(operator.builtinOptions) if operator.builtinOptions is not None else {}
    return [number for name, number in options.items() if "subgraph" in name.lower()]
