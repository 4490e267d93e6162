"""The memory of a converted network, read off its file (paper 4.1)."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from math import prod
from typing import Any

from ai_edge_litert.tools import flatbuffer_utils

from mistify.costs.network import LayerCost, NetworkCost
from mistify.package.manifest import fixed_batch_signature

#: Operators whose output is their input's memory.
IN_PLACE = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})

#: Bytes of an element; of types that hold no numbers, such as RESOURCE, there are none.
_WIDTHS = {
    **dict.fromkeys(("BOOL", "INT8", "UINT8"), 1),
    **dict.fromkeys(("FLOAT16", "INT16", "UINT16"), 2),
    **dict.fromkeys(("FLOAT32", "INT32", "UINT32"), 4),
    **dict.fromkeys(("FLOAT64", "INT64", "UINT64"), 8),
}


#: The shape of each tensor of a graph by its number.
Shapes = Mapping[int, list[int]]


def memory_bytes(
    network: bytes,
    only: Collection[str] = (),
    shapes_of: Callable[[str, int], Shapes] = lambda signature, graph: {},
) -> float:
    """Return the bytes of stored constants, each once, plus the most bytes of tensors alive at once.

    It is for one example, where tensors have the types of the file: an int8 tensor takes a byte an element,
    and a kernel that was left in float32 takes four.

    Args:
        network: A `.tflite`.
        only: Signatures that count, of those for any batch; all where none are named. Their constants are
            added up; of their tensors, the largest sum counts.
        shapes_of: Returns the shapes of a signature's graph, given both, where no graph has fixed ones; by
            default those that the file has for one example.
    """
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(network))
    graphs = {one.signatureKey.decode(): one.subgraphIndex for one in model.signatureDefs}
    fixed = {fixed_batch_signature(name) for name in graphs}
    counted = [name for name in graphs if name not in fixed and (not only or name in only)]
    reached = set(chain.from_iterable(_reached(model, graphs[name]) for name in counted))
    buffers = {tensor.buffer for graph in reached for tensor in model.subgraphs[graph].tensors}
    constants = sum(len(model.buffers[buffer].data) for buffer in buffers if _is_stored(model, buffer))
    return float(constants + max(_peak_of_signature(model, name, graphs, shapes_of) for name in counted))


def _peak_of_signature(
    model: Any, name: str, graphs: Mapping[str, int], shapes_of: Callable[[str, int], Shapes]
) -> int:
    """Return the most bytes that are alive when a signature runs one example."""
    fixed = graphs.get(fixed_batch_signature(name))
    if fixed is not None:
        return _peak(model, fixed, {})
    return _peak(model, graphs[name], shapes_of(name, graphs[name]))


def _peak(model: Any, graph: int, shapes: Shapes) -> int:
    """Return the most bytes of tensors that are alive at once in a graph; constants are not.

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
            constants.update(operator.outputs)  # a weight that is stored as float16
        inside = max([inside, *(_peak(model, called, {}) for called in _called(operator))])
        layers += [
            LayerCost(f"{name}_{number}", 0, 0, 0, read, int(output), in_place=name in IN_PLACE)
            for output in operator.outputs
            if output not in constants
        ]
    sizes = tuple(
        0 if index in constants else _bytes(tensor, shapes.get(index))
        for index, tensor in enumerate(subgraph.tensors)
    )
    ends = (tuple(map(int, subgraph.inputs)), tuple(map(int, subgraph.outputs)))
    return NetworkCost(tuple(layers), sizes, *ends).peak_activations + inside


def _bytes(tensor: Any, shape: list[int] | None) -> int:
    sizes = shape if shape is not None else [] if tensor.shape is None else list(tensor.shape)
    return _WIDTHS.get(flatbuffer_utils.type_to_name(tensor.type), 0) * int(prod(sizes))


def _is_stored(model: Any, buffer: int) -> bool:
    return model.buffers[buffer].data is not None


def _reached(model: Any, graph: int) -> Iterator[int]:
    """Yield a graph and all graphs that its operators run."""
    yield graph
    for operator in model.subgraphs[graph].operators:
        for called in _called(operator):
            yield from _reached(model, called)


def _called(operator: Any) -> list[int]:
    """Return the graphs that an operator runs: those of a condition or a loop."""
    options = vars(operator.builtinOptions) if operator.builtinOptions is not None else {}
    return [number for name, number in options.items() if "subgraph" in name.lower()]
