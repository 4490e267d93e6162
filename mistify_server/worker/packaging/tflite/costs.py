"""Costs of converted networks without layers, computed from their operators (paper 4.1)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import prod

from executors.inspection.errors import invalid
from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost
from mistify.tflite.memory import IN_PLACE
from mistify_server.worker.packaging.tflite.flatbuffer import Operator, ends, operators
from mistify_server.worker.packaging.tflite.operators import operations_of, summed
from mistify_server.worker.packaging.tflite.runner import tensor_shapes

#: Operators that run other graphs or hold state: their costs do not follow from their tensors.
_OPAQUE = frozenset({"WHILE", "IF", "CALL_ONCE", "CUSTOM", "RNN", "LSTM", "SVDF"})
_OPAQUE_SUFFIXES = ("_SEQUENCE_RNN", "_SEQUENCE_LSTM")


def network_cost(network: bytes) -> NetworkCost:
    """Return the costs of a float32 network per operator.

    Raises:
        MistifyError: INVALID_MODEL, the costs of an operator are unknown.
    """
    layers: list[LayerCost] = []
    counted: set[int] = set()
    computed: set[int] = set()
    unshaped = list(operators(network))
    _refuse_opaque(unshaped)  # before running the network: a loop may never end
    shapes = tensor_shapes(network)
    for number, operator_of_any_batch in enumerate(unshaped):
        operator = operator_of_any_batch.shaped(shapes)
        layers += operator_costs(number, operator, counted, computed)
        computed.update(tensor.index for tensor in operator.outputs)
    inputs, outputs = ends(network)
    elements = tuple(prod(shapes.get(index, (0,))) for index in range(max(shapes) + 1))
    return NetworkCost(tuple(layers), elements, inputs, outputs)


def is_opaque(operator: Operator) -> bool:
    """Check whether an operator's costs do not follow from its tensors."""
    return operator.name in _OPAQUE or operator.name.endswith(_OPAQUE_SUFFIXES)


def _refuse_opaque(unchecked: Iterable[Operator]) -> None:
    for operator in unchecked:
        if is_opaque(operator):
            raise invalid(
                "the graph", f"the operator {operator.name}, which has unknown costs",
                "operators without state", "give the Keras model itself, saved with model.save(FILE)",
            )  # fmt: skip


def operator_costs(
    number: int, operator: Operator, counted: set[int], computed: Collection[int]
) -> Iterator[LayerCost]:
    """Yield the layer of an operator, and a layer without costs for each additional output.

    Args:
        number: Index of the operator.
        operator: An operator with the shapes of its tensors at batch 1.
        counted: Constants of earlier operators; its own are added.
        computed: Tensors written by earlier operators.
    """
    constants = [tensor for tensor in operator.inputs if tensor.content is not None]
    own = {tensor.index: prod(tensor.shape) for tensor in constants if tensor.index not in counted}
    biases = sum(own[tensor.index] for tensor in constants if tensor.index in own and len(tensor.shape) < 2)
    counted.update(own)
    read = () if operator.name == "SHAPE" else operator.inputs
    inputs = tuple(tensor.index for tensor in read if not tensor.is_constant)
    for place, output in enumerate(operator.outputs):
        first = place == 0
        yield LayerCost(
            name=f"{operator.name}_{number}",
            multiply_adds=_multiply_adds(operator) if first else 0,
            params=sum(own.values()) if first else 0,
            stored_params=sum(own.values()) if first else 0,
            inputs=inputs,
            output=output.index,
            in_place=operator.name in IN_PLACE,
            stored_biases=biases if first else 0,
            operations=operations_of(operator, computed) if first else (),
        )


def _multiply_adds(operator: Operator) -> int:
    count = _COUNTS.get(operator.name)
    return 0 if count is None else count(operator)


def _convolution(operator: Operator) -> int:
    """Count each weight of the kernel once per output position."""
    return prod(operator.inputs[1].shape) * prod(operator.outputs[0].shape[1:-1])


def _transposed_convolution(operator: Operator) -> int:
    """Count each weight of the kernel once per position of the input, which is the last tensor."""
    return prod(operator.inputs[1].shape) * prod(operator.inputs[2].shape[1:-1])


def _fully_connected(operator: Operator) -> int:
    """Count each weight once per row of the output."""
    return prod(operator.inputs[1].shape) * prod(operator.outputs[0].shape[:-1])


def _matrix_product(operator: Operator) -> int:
    """Count `k` per element of the output of `m x k` by `k x n`."""
    return summed(operator) * prod(operator.outputs[0].shape)


_COUNTS: Mapping[str, Callable[[Operator], int]] = {
    "CONV_2D": _convolution,
    "CONV_3D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "TRANSPOSE_CONV": _transposed_convolution,
    "CONV_3D_TRANSPOSE": _transposed_convolution,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _matrix_product,
}
