"""A separate signature for each branch of a network (paper 6).

Each condition on the way to a branch costs about 3 us in LiteRT, independent of its tensors, because the
memory of the selected branch is allocated again in every inference. A branch with its own signature keeps its
memory.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.package.manifest import BRANCH_INPUT, branch_signature
from mistify.tflite.packing import packed

#: Index of a tensor in a graph -> its name in a signature.
_Names = Mapping[int, bytes]


def with_branch_signatures(network: bytes) -> bytes:
    """Add signatures for the graphs that a network selects from, in order.

    Args:
        network: A network with a single signature that only selects between graphs with the same inputs.
    """
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(network))
    (whole,) = model.signatureDefs
    chosen = _chosen(model, whole.subgraphIndex, _names(whole.inputs), _names(whole.outputs))
    for number, (graph, inputs, outputs) in enumerate(list(chosen)):
        own = {tensor: name for tensor, name in inputs.items() if name != BRANCH_INPUT.encode()}
        if len(own) < len(inputs):
            graph = _moved(model, graph, list(own))  # noqa: PLW2901 - the new location of the branch
        model.signatureDefs.append(_signature(branch_signature(number), graph, own, outputs))
    return packed(model)


def _moved(model: Any, number: int, inputs: list[int]) -> int:
    """Move a graph's operators into a new graph with fewer inputs that the old graph calls.

    Both graphs of a condition take the same inputs, so a branch may get an index that it does not use.
    LiteRT's `CompiledModel` rejects signatures that omit an input of their graph.

    Args:
        number: Index of the graph.

    Returns:
        The index of the new graph. Tensors keep their indices in both graphs.
    """
    graph, target = model.subgraphs[number], len(model.subgraphs)
    moved = copy(graph)
    moved.inputs = inputs
    model.subgraphs.append(moved)
    call = schema.OperatorT(
        opcodeIndex=_choice(model),
        inputs=[len(graph.tensors), *inputs],
        outputs=graph.outputs,
        builtinOptionsType=schema.BuiltinOptions.IfOptions,
        builtinOptions=schema.IfOptionsT(thenSubgraphIndex=target, elseSubgraphIndex=target),
    )
    graph.operators = [call]  # the only LiteRT operator that runs a graph once
    graph.tensors = [*graph.tensors, _true(model)]
    return target


def _true(model: Any) -> Any:
    """Return a constant true tensor, and add its buffer to the model."""
    model.buffers.append(schema.BufferT(data=np.ones(1, np.uint8)))
    return schema.TensorT(
        shape=[], type=schema.TensorType.BOOL, buffer=len(model.buffers) - 1, name=b"always", hasRank=True
    )


def _choice(model: Any) -> int:
    """Return the index of the operator IF; it is added to a network without it, which has a single branch."""
    names = [flatbuffer_utils.opcode_to_name(model, number) for number in range(len(model.operatorCodes))]
    if "IF" not in names:
        code = schema.BuiltinOperator.IF
        model.operatorCodes.append(schema.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code))
        return len(names)
    return names.index("IF")


def _chosen(model: Any, number: int, inputs: _Names, outputs: _Names) -> Iterator[tuple[int, _Names, _Names]]:
    """Yield the graphs that a graph selects from, with the names of their inputs and outputs.

    A graph without a condition is yielded itself.
    """
    graph = model.subgraphs[number]
    choices = [
        operator
        for operator in graph.operators
        if flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) == "IF"
    ]
    if not choices:
        yield number, inputs, outputs
    for choice in choices:
        options = choice.builtinOptions
        for below in (options.thenSubgraphIndex, options.elseSubgraphIndex):
            takes, gives = model.subgraphs[below].inputs, model.subgraphs[below].outputs
            yield from _chosen(
                model,
                below,
                {int(own): inputs[outer] for own, outer in zip(takes, choice.inputs[1:], strict=True)},
                {int(own): outputs[outer] for own, outer in zip(gives, choice.outputs, strict=True)},
            )


def _names(tensors: Any) -> _Names:
    return {tensor.tensorIndex: tensor.name for tensor in tensors}


def _signature(key: str, graph: int, inputs: _Names, outputs: _Names) -> Any:
    signature = schema.SignatureDefT()
    signature.signatureKey = key.encode()
    signature.subgraphIndex = graph
    signature.inputs, signature.outputs = _tensors(inputs), _tensors(outputs)
    return signature


def _tensors(names: _Names) -> list[Any]:
    tensors = []
    for number, name in names.items():
        tensor = schema.TensorMapT()
        tensor.tensorIndex, tensor.name = number, name
        tensors.append(tensor)
    return tensors
