"""Converted networks whose operators run in an order that takes little memory."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from copy import copy
from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.tflite.combining import read_network, shape_of
from mistify.tflite.memory import tensor_bytes
from mistify.tflite.packing import packed
from mistify_server.worker.packaging.scheduling.recomputation import with_recomputation
from mistify_server.worker.packaging.scheduling.schedule import Schedule, Step, with_least_memory

#: Operators that only move values: running them again takes hardly any time.
_COPIES: Final = frozenset(
    {
        *("CONCATENATION", "EXPAND_DIMS", "GATHER", "PAD", "PADV2", "RESHAPE", "SLICE", "SQUEEZE"),
        *("STRIDED_SLICE", "TRANSPOSE"),
    }
)

#: Operators on variables, in whose order they read and write.
_READ: Final = "READ_VARIABLE"
_WRITE: Final = "ASSIGN_VARIABLE"
_HANDLE: Final = "VAR_HANDLE"

#: The operator that runs the graph with the variables' first values, before all others.
_INITIALIZE: Final = "CALL_ONCE"

#: Operators with other state, or that run other graphs: graphs with them keep their order.
_UNORDERED: Final = frozenset(
    {
        *("CALL", "CUSTOM", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "IF"),
        *("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "STABLEHLO_COMPOSITE", "WHILE"),
    }
)

#: The metadata that keep operators in order while LiteRT assigns them to a delegate.
_CONTROL_DEPENDENCIES: Final = b"model_control_dependencies"


def with_little_memory(network: bytes) -> bytes:
    """Return a network that computes the same bits, and needs less memory while it does.

    Operators run in another order, and those that only move values run again where their results would
    otherwise be kept (CrowdHMTware III-C2). LiteRT's delegates reorder operators as soon as their inputs are
    there, unless the file says in which order they have to run.

    Args:
        network: A `.tflite` whose shapes are fixed; graphs of other shapes keep their order.
    """
    model = read_network(network)
    reordered = [_reordered(model, graph) for graph in model.subgraphs]
    counts = [
        len(graph.operators) if own else 0 for graph, own in zip(model.subgraphs, reordered, strict=True)
    ]
    model.buffers.append(schema.BufferT(data=np.frombuffer(_one_after_the_other(counts), np.uint8)))
    entry = schema.MetadataT(name=_CONTROL_DEPENDENCIES, buffer=len(model.buffers) - 1)
    model.metadata = [*(model.metadata or []), entry]
    return packed(model)


def _reordered(model: Any, graph: Any) -> bool:
    """Reorder the operators of a graph in place, and return whether its order is known to matter."""
    names = [flatbuffer_utils.opcode_to_name(model, one.opcodeIndex) for one in graph.operators]
    open_shapes = any(
        tensor.shapeSignature is not None and -1 in tensor.shapeSignature for tensor in graph.tensors
    )
    if open_shapes or _UNORDERED.intersection(names):
        return False
    stored = {at for at, one in enumerate(graph.tensors) if model.buffers[one.buffer].data is not None}
    schedule = _schedule(graph, names, stored)
    if not schedule.peak:
        return False
    copies = {at for at, name in enumerate(names) if name in _COPIES}
    _write(graph, schedule.steps, with_recomputation(with_least_memory(schedule), copies))
    return True


def _schedule(graph: Any, names: Sequence[str], stored: Collection[int]) -> Schedule:
    """Return the operators of a graph in their order."""
    steps = tuple(
        Step(
            at,
            tuple(int(tensor) for tensor in operator.inputs if tensor >= 0 and tensor not in stored),
            tuple(map(int, operator.outputs)),
        )
        for at, operator in enumerate(graph.operators)
    )
    sizes = {
        at: 0 if at in stored else tensor_bytes(one.type, shape_of(one))
        for at, one in enumerate(graph.tensors)
    }
    ends = (tuple(map(int, graph.inputs)), tuple(map(int, graph.outputs)))
    return Schedule(steps, sizes, *ends, _after(graph, names))


def _after(graph: Any, names: Sequence[str]) -> dict[int, set[int]]:
    """Return the operators that have to run before those on variables: earlier writes, or reads."""
    after = dict[int, set[int]]()
    initializing = {at for at, name in enumerate(names) if name == _INITIALIZE}
    variables = dict[int, str]()
    accesses = defaultdict[tuple[str, str], set[int]](set)
    for at, (operator, name) in enumerate(zip(graph.operators, names, strict=True)):
        if name == _HANDLE:
            variables[int(operator.outputs[0])] = operator.builtinOptions.sharedName
        elif name in (_READ, _WRITE):
            variable = variables[int(operator.inputs[0])]
            writes, reads = accesses[_WRITE, variable], accesses[_READ, variable]
            after[at] = initializing | writes | (reads if name == _WRITE else set())
            accesses[name, variable].add(at)
    return after


def _write(graph: Any, steps: Sequence[Step], schedule: Schedule) -> None:
    """Replace the operators of a graph.

    Args:
        steps: The graph's operators in their order.
        schedule: Other steps of the same operators, with new tensors.
    """
    operators, graph.operators = graph.operators, []
    numbers = {tensor: tensor for tensor in range(len(graph.tensors))}
    for step in schedule.steps:
        of_graph = steps[step.operator]
        renamed = dict(zip([*of_graph.inputs, *of_graph.outputs], [*step.inputs, *step.outputs], strict=True))
        for old, new in renamed.items():
            if new not in numbers:
                numbers[new] = len(graph.tensors)
                graph.tensors.append(copy(graph.tensors[old]))
        operator = copy(operators[step.operator])
        operator.inputs = [numbers[renamed[at]] if at in renamed else at for at in map(int, operator.inputs)]
        operator.outputs = [numbers[renamed[at]] for at in map(int, operator.outputs)]
        graph.operators.append(operator)


def _one_after_the_other(counts: Sequence[int]) -> bytes:
    """Return metadata by which the operators of each graph run in their order.

    The format is that of LiteRT's `ModelControlDependencies`, version 1: for each graph the number of its
    dependencies, and for each of those two operators; numbers are variable-length, operators' with a sign.

    Args:
        counts: The number of operators of each graph; 0 if their order does not matter.
    """
    content = [_variable_length(1), _variable_length(len(counts))]
    for count in counts:
        content.append(_variable_length(max(count - 1, 0)))
        for at in range(count - 1):
            content += [_variable_length(2 * at), _variable_length(2 * at + 2)]
    return b"".join(content)


def _variable_length(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first; all but the last one are marked."""
    content = bytearray()
    while number >= 128:
        content.append(number % 128 + 128)
        number //= 128
    return bytes([*content, number])
