"""The operators of a converted network, in terms of the cost model (`mistify.costs.operators`)."""

from collections.abc import Callable, Collection, Mapping
from math import prod

from mistify.costs.operators import Operation, OperatorKind, elementwise, with_memory
from mistify_server.worker.packaging.tflite.flatbuffer import FlatbufferTensor, Operator

#: Operators that compute the shape for a later reshape, and count as part of it.
_SHAPES = frozenset({"SHAPE", "STRIDED_SLICE", "PACK", "REDUCE_PROD"})

#: Operators that LiteRT computes in float32 at every precision.
_FLOAT_ONLY = frozenset({"CONV_3D", "CONV_3D_TRANSPOSE", "ELU"})


def operations_of(operator: Operator, computed: Collection[int]) -> tuple[Operation, ...]:
    """Return the operations of an operator.

    Args:
        operator: An operator with the shapes of its tensors at batch 1.
        computed: Tensors written by earlier operators.
    """
    if operator.name in _SHAPES:
        return ()
    if operator.name == "RESHAPE":
        # Its second input is the new shape.
        flattens = any(tensor.index in computed for tensor in operator.inputs[1:])
        return (_over(OperatorKind.FLATTEN if flattens else OperatorKind.RESHAPE, operator.inputs[0]),)
    if operator.name in _PRODUCTS:
        operation = _PRODUCTS[operator.name](operator)
    else:
        operation = _over(_KINDS.get(operator.name, OperatorKind.ADD), operator.outputs[0])
    return (with_memory(operation, float_only=operator.name in _FLOAT_ONLY),)


def _over(kind: OperatorKind, tensor: FlatbufferTensor) -> Operation:
    shape = tensor.shape
    return elementwise(kind, prod(shape[1:-1]), shape[-1] if shape else 1)


def _convolution(operator: Operator) -> Operation:
    read, kernel, written = operator.inputs[0].shape, operator.inputs[1].shape, operator.outputs[0].shape
    groups = max(read[-1] // kernel[-1], 1)
    return Operation(
        OperatorKind.CONVOLUTION,
        prod(written[1:-1]),
        kernel[-1],
        written[-1] // groups,
        prod(kernel[1:-1]),
        _stride(read, written),
        groups,
    )


def _convolution_over_volumes(operator: Operator) -> Operation:
    """Return a 3-D convolution; its kernel has output channels last, and there are no groups."""
    read, written = operator.inputs[0].shape, operator.outputs[0].shape
    *window, c_in, c_out = operator.inputs[1].shape
    positions, stride = prod(written[1:-1]), _stride(read, written)
    return Operation(OperatorKind.CONVOLUTION, positions, c_in, c_out, prod(window), stride)


def _transposed_convolution(operator: Operator) -> Operation:
    """Return a transposed convolution: each input position contributes to all outputs under the kernel."""
    kernel, read = operator.inputs[1].shape, operator.inputs[2].shape
    return Operation(OperatorKind.CONVOLUTION, prod(read[1:-1]), kernel[-1], prod(kernel[:-1]))


def _depthwise(operator: Operator) -> Operation:
    read, kernel, written = operator.inputs[0].shape, operator.inputs[1].shape, operator.outputs[0].shape
    window, stride = prod(kernel[1:-1]), _stride(read, written)
    return Operation(OperatorKind.DEPTHWISE, prod(written[1:-1]), read[-1], written[-1], window, stride)


def _fully_connected(operator: Operator) -> Operation:
    c_out, c_in = operator.inputs[1].shape
    return Operation(OperatorKind.DENSE, prod(operator.outputs[0].shape[:-1]), c_in, c_out)


def _matrix_product(operator: Operator) -> Operation:
    *batch, rows, columns = operator.outputs[0].shape
    return Operation(OperatorKind.PRODUCT, rows, summed(operator), columns, times=prod(batch))


def summed(operator: Operator) -> int:
    """Return the `k` of a matrix product of `m x k` by `k x n`; either factor may be transposed."""
    return prod(operator.inputs[0].shape[-2:]) // max(operator.outputs[0].shape[-2], 1)


def _pool(operator: Operator) -> Operation:
    """Return a pooling, assuming adjacent windows because the window size is not among its tensors."""
    read, written = operator.inputs[0].shape, operator.outputs[0].shape
    kind = OperatorKind.MAX_POOL if operator.name == "MAX_POOL_2D" else OperatorKind.AVERAGE_POOL
    stride = _stride(read, written)
    return Operation(kind, prod(written[1:-1]), written[-1], written[-1], stride, stride)


def _reduction(operator: Operator) -> Operation:
    """Return a reduction over positions, or a pass over the input if channels are reduced."""
    read, written = operator.inputs[0].shape, operator.outputs[0].shape
    if not written or written[-1] != read[-1]:
        return elementwise(OperatorKind.ADD, prod(read[1:-1]), read[-1])
    return Operation(OperatorKind.MEAN, 1, read[-1], read[-1], 1, prod(read[1:-1]))


def _stride(read: tuple[int, ...], written: tuple[int, ...]) -> int:
    """Return the number of input positions per output position."""
    return max(1, round(prod(read[1:-1]) / max(prod(written[1:-1]), 1)))


_PRODUCTS: Mapping[str, Callable[[Operator], Operation]] = {
    "CONV_2D": _convolution,
    "CONV_3D": _convolution_over_volumes,
    "TRANSPOSE_CONV": _transposed_convolution,
    "CONV_3D_TRANSPOSE": _transposed_convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _matrix_product,
    "MAX_POOL_2D": _pool,
    "AVERAGE_POOL_2D": _pool,
    "MEAN": _reduction,
    "REDUCE_MAX": _reduction,
}

#: Operators that make one pass over their output; others are assumed to cost as much as a sum of two tensors.
_KINDS: Mapping[str, OperatorKind] = {
    "SOFTMAX": OperatorKind.SOFTMAX,
    "QUANTIZE": OperatorKind.QUANTIZE,
    "DEQUANTIZE": OperatorKind.DEQUANTIZE,
    **dict.fromkeys(
        ("ELU", "EXP", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "POW", "TANH"), OperatorKind.ACTIVATION
    ),
    **dict.fromkeys(
        ("CONCATENATION", "GATHER", "PAD", "RESIZE_BILINEAR", "SLICE", "TILE", "TRANSPOSE"), OperatorKind.COPY
    ),
    **dict.fromkeys(("EXPAND_DIMS", "SQUEEZE"), OperatorKind.RESHAPE),
}
