"""A signature for each branch of a network, by which it runs on its own (paper 6).

Each condition on the way to a branch costs LiteRT about 3 us, whatever it passes on: the memory of a chosen
branch is allocated again in every inference. A branch that runs by its own signature keeps its memory.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.package.manifest import BRANCH_INPUT, branch_signature

#: Tensors of a graph by their numbers, with their names in a signature.
_Names = Mapping[int, bytes]


def with_branch_signatures(network: bytes) -> bytes:
    """Add signatures for the graphs that a network chooses between, in their order.

    Args:
        network: Its only signature does nothing but choose between graphs that take its inputs.
    """
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(network))
    (whole,) = model.signatureDefs
    chosen = _chosen(model, whole.subgraphIndex, _names(whole.inputs), _names(whole.outputs))
    for number, (graph, inputs, outputs) in enumerate(chosen):
        own_inputs = {tensor: name for tensor, name in inputs.items() if name != BRANCH_INPUT.encode()}
        model.signatureDefs.append(_signature(branch_signature(number), graph, own_inputs, outputs))
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _chosen(model: Any, number: int, inputs: _Names, outputs: _Names) -> Iterator[tuple[int, _Names, _Names]]:
    """Yield the graphs that one chooses between, with the names of their inputs and outputs.

    A graph that does not choose is yielded itself.
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
