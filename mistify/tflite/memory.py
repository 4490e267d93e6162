"""The memory of a converted network, computed from its file (paper 4.1)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from math import prod
from mmap import mmap
from typing import Any

from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.costs.liveness import Step, peak_bytes
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

#: LiteRT's number of an operator -> its name.
_OPERATORS = {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}

#: Types of the options of operators that call graphs.
_CALLS = frozenset(
    getattr(schema.BuiltinOptions, f"{name}Options") for name in ("If", "While", "Call", "CallOnce")
)

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
    # Reading the whole file into objects would take most of the time.
    model = schema.Model.GetRootAs(network, 0)
    signatures = map(model.SignatureDefs, range(model.SignatureDefsLength()))
    graphs = {one.SignatureKey().decode(): int(one.SubgraphIndex()) for one in signatures}
    fixed = {fixed_batch_signature(name) for name in graphs}
    counted = [name for name in graphs if name not in fixed and (not only or name in only)]
    reached = set(chain.from_iterable(_reachable_graphs(model, graphs[name]) for name in counted))
    buffers = {tensor.Buffer() for graph in reached for tensor in _tensors(model.Subgraphs(graph))}
    constants = sum(_stored_bytes(model, buffer) or 0 for buffer in buffers)
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
    subgraph = model.Subgraphs(graph)
    tensors = list(_tensors(subgraph))
    constants = {at for at, tensor in enumerate(tensors) if _stored_bytes(model, tensor.Buffer()) is not None}
    steps: list[Step] = []
    inside = 0
    for operator in _operators(subgraph):
        name = _name(model, operator)
        inputs = map(operator.Inputs, range(operator.InputsLength()))
        outputs = [operator.Outputs(at) for at in range(operator.OutputsLength())]
        read = tuple(index for index in inputs if index >= 0 and index not in constants)
        if name == "DEQUANTIZE" and not read:
            constants.update(outputs)  # a weight stored as float16
        inside = max([inside, *(_peak(model, called, {}) for called in _called(operator))])
        steps += [
            Step(read, output, in_place=name in IN_PLACE) for output in outputs if output not in constants
        ]
    sizes = {
        at: 0 if at in constants else tensor_bytes(tensor.Type(), shapes.get(at, _shape(tensor)))
        for at, tensor in enumerate(tensors)
    }
    ends = (
        tuple(map(subgraph.Inputs, range(subgraph.InputsLength()))),
        tuple(map(subgraph.Outputs, range(subgraph.OutputsLength()))),
    )
    return peak_bytes(steps, sizes, *ends) + inside


def tensor_bytes(element: int, shape: Iterable[int]) -> int:
    """Return the size of a tensor in bytes.

    Args:
        element: LiteRT's number of the type of its elements.
        shape: Its sizes.
    """
    return ELEMENT_BYTES.get(flatbuffer_utils.type_to_name(element), 0) * int(prod(shape))


def _tensors(graph: Any) -> Iterator[Any]:
    return map(graph.Tensors, range(graph.TensorsLength()))


def _operators(graph: Any) -> Iterator[Any]:
    return map(graph.Operators, range(graph.OperatorsLength()))


def _shape(tensor: Any) -> list[int]:
    return [tensor.Shape(at) for at in range(tensor.ShapeLength())]


def _name(model: Any, operator: Any) -> str | None:
    code = model.OperatorCodes(operator.OpcodeIndex())
    return _OPERATORS.get(flatbuffer_utils.get_builtin_code_from_operator_code(code))


def _stored_bytes(model: Any, number: int) -> int | None:
    """Return the size of the content of a buffer; None if it has none."""
    buffer = model.Buffers(number)
    if buffer.Offset():  # behind the tables of a large file
        return int(buffer.Size())
    return None if buffer.DataIsNone() else int(buffer.DataLength())


def _reachable_graphs(model: Any, graph: int) -> Iterator[int]:
    """Yield a graph and all graphs that its operators call."""
    yield graph
    for operator in _operators(model.Subgraphs(graph)):
        for called in _called(operator):
            yield from _reachable_graphs(model, called)


def _called(operator: Any) -> list[int]:
    """Return the graphs that an operator calls, for a condition or loop."""
    if operator.BuiltinOptionsType() not in _CALLS:
        return []
    options = schema.BuiltinOptionsCreator(operator.BuiltinOptionsType(), operator.BuiltinOptions())
    return [number for name, number in vars(options).items() if "subgraph" in name.lower()]
