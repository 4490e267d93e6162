"""Scaling of inputs that stays in float32, since a single integer scale for all features would lose some.

Features of tables and sensors have ranges of their own, such as millimetres beside square metres, and a first
layer that makes them alike. The integers of an input have one scale, that of the largest feature, in which
small ones are all zero. So the operators up to the first one that mixes features compute in float32, unless
their inputs are as fine in integers as their outputs, as those of images are.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert.tools import flatbuffer_utils

from mistify.tflite.combining import read_network, shape_of

#: Operators that scale or shift each feature by a constant.
_SCALING: Final = frozenset(["ADD", "SUB", "MUL", "DIV"])

#: Inputs stay in float32 if their integers were coarser than those of the scaled features by this factor.
_COARSER: Final = 4.0


def scaling_in_floats(calibrated: bytes) -> list[str]:
    """Return the operators that scale inputs and have to stay in float32, named by their outputs.

    Args:
        calibrated: A `.tflite` in float32 with the range of each activation.
    """
    network = read_network(calibrated)
    graphs = {signature.subgraphIndex for signature in network.signatureDefs}
    return [
        name
        for graph in sorted(graphs)
        for number in network.subgraphs[graph].inputs
        for name in _scaling_of(network, network.subgraphs[graph], int(number))
    ]


def _scaling_of(network: Any, graph: Any, first: int) -> list[str]:
    """Return the operators that scale an input; none if integers would do."""
    names: list[str] = []
    gain: npt.NDArray[np.float32] = np.ones(1, np.float32)
    number = first
    for operator, factor in _scaling_operators(network, graph, first):
        gain = gain * factor
        number = int(operator.outputs[0])
        names.append(graph.tensors[number].name.decode())
    before, after = (_extent(graph.tensors[each]) for each in (first, number))
    return names if float(np.max(gain)) * before > _COARSER * after else []


def _scaling_operators(
    network: Any, graph: Any, number: int
) -> Iterator[tuple[Any, npt.NDArray[np.float32]]]:
    """Yield the operators that scale or shift a tensor one after the other, with the factors of features."""
    while True:
        readers = [operator for operator in graph.operators if number in operator.inputs]
        if len(readers) != 1 or len(readers[0].inputs) != 2:
            return
        (operator,) = readers
        kind = flatbuffer_utils.opcode_to_name(network, operator.opcodeIndex)
        place = list(operator.inputs).index(number)
        constant = _floats(network, graph.tensors[operator.inputs[1 - place]])
        if kind not in _SCALING or constant is None or (kind == "DIV" and place == 1):
            return
        yield operator, _factors(kind, constant)
        number = int(operator.outputs[0])


def _factors(kind: str, constant: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return by how much an operator with a constant enlarges features."""
    if kind == "MUL":
        return np.abs(constant)
    return np.abs(np.reciprocal(constant)) if kind == "DIV" else np.ones(1, np.float32)


def _floats(network: Any, tensor: Any) -> npt.NDArray[np.float32] | None:
    """Return the values of a constant; None for other tensors."""
    stored = network.buffers[tensor.buffer].data
    if stored is None or flatbuffer_utils.type_to_name(tensor.type) != "FLOAT32":
        return None
    return np.asarray(stored, np.uint8).view(np.float32).reshape(shape_of(tensor))


def _extent(tensor: Any) -> float:
    """Return the extent of a tensor's calibrated range, which integers extend to zero; 0 if it is unknown."""
    quantization = tensor.quantization
    if quantization is None or quantization.min is None:
        return 0.0
    return max(float(quantization.max[0]), 0.0) - min(float(quantization.min[0]), 0.0)
