"""Corresponding tensors of a network and of a narrower network, both converted in the same way."""

from typing import Any


def paired(network: Any, graph: Any, narrower: Any, other: Any) -> dict[int, int]:
    """Return the tensors of a graph, and the corresponding tensors of the narrower network.

    Args:
        network: Read from its file.
        graph: One of its graphs.
        narrower: The narrower network, read from its file.
        other: The same graph of the narrower network.

    Raises:
        ValueError: The graphs have different operators.
    """
    codes = [builtin_code(network, operator) for operator in graph.operators]
    if codes != [builtin_code(narrower, operator) for operator in other.operators]:
        raise ValueError("the converter uses other operators for a slice than for the whole network")
    pairs = list(zip([*graph.inputs, *graph.outputs], [*other.inputs, *other.outputs], strict=True))
    for operator, others_operator in zip(graph.operators, other.operators, strict=True):
        pairs += zip(operator.inputs, others_operator.inputs, strict=True)
        pairs += zip(operator.outputs, others_operator.outputs, strict=True)
    return {int(number): int(others_number) for number, others_number in pairs if number >= 0}


def builtin_code(network: Any, operator: Any) -> int:
    """Return the code of an operator's kind, a `schema.BuiltinOperator`."""
    return int(network.operatorCodes[operator.opcodeIndex].builtinCode)
