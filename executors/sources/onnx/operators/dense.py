"""Products with a matrix, and of two tensors."""

import keras
import numpy as np

from executors.sources.onnx.attention import attended
from executors.sources.onnx.batch import Array
from executors.sources.onnx.builder import Builder, as_float, set_weights
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.operators.reduction import without
from executors.sources.onnx.registry import Argument, Node, constant, operator, optional, tensor
from executors.sources.onnx.values import Value


@operator("Gemm")
def gemm(builder: Builder, node: Node, left: Argument, right: Argument, addend: Argument = None) -> Value:
    """Build a dense layer from `alpha * left @ right + beta * addend`, and a sum for a computed addend."""
    value, kernel = tensor(left), as_float(constant(right, "second factor"))
    if node.get("transA"):
        value = _swapped(builder, value)
    kernel = (kernel.T if node.get("transB") else kernel) * np.float32(node.get("alpha", 1.0))
    if isinstance(addend, Value):
        made = dense(builder, builder.weighted(node), value, kernel, None)
        return _added(builder, made, addend, float(node.get("beta", 1.0)))
    bias = optional(addend, "addend")
    if bias is not None:
        if bias.size not in (1, kernel.shape[1]):
            raise UnsupportedNodeError(f"adds a matrix of shape {bias.shape}; expected a row")
        bias = np.broadcast_to(as_float(bias).reshape(-1), kernel.shape[1:]) * np.float32(
            node.get("beta", 1.0)
        )
    return dense(builder, builder.weighted(node), value, kernel, bias)


def _added(builder: Builder, made: Value, addend: Value, factor: float) -> Value:
    """Return the sum of a product and a computed matrix."""
    addend = builder.ordered(addend)
    if addend.axes != made.axes:
        raise UnsupportedNodeError("adds data whose batch is on another axis")
    matrix = addend.tensor
    if factor != 1:
        matrix = keras.layers.Rescaling(factor, name=builder.helper("scale"))(matrix)
    return made.with_tensor(keras.layers.Add(name=builder.helper("add"))([made.tensor, matrix]))


@operator("MatMul")
def matmul(builder: Builder, node: Node, left: Argument, right: Argument) -> Value:
    """Build a dense layer if one factor is a constant matrix or vector, and a product otherwise."""
    if isinstance(left, Value) and isinstance(right, Value):
        return product(builder, left, right)
    if isinstance(left, Value):
        kernel = as_float(constant(right, "kernel"))
        if kernel.ndim > 2:
            return _product_with_constants(builder, left, kernel)
        made = dense(builder, builder.weighted(node), left, kernel.reshape(len(kernel), -1), None)
        return made if kernel.ndim == 2 else without(builder, made, [made.rank - 1])
    value, kernel = tensor(right), as_float(constant(left, "kernel"))
    if kernel.ndim > 2:
        return _product_with_constants(builder, value, kernel, constant_first=True)
    # kernel @ x is the transpose of x.T @ kernel.T
    rows = kernel.reshape(-1, kernel.shape[-1]).T
    made = dense(builder, builder.weighted(node, 0), _swapped(builder, value), rows, None)
    return _swapped(builder, made) if kernel.ndim == 2 else without(builder, made, [made.rank - 1])


def _swapped(builder: Builder, value: Value) -> Value:
    """Return a value whose last two ONNX axes are swapped."""
    return builder.ordered(value).swapped(value.rank - 1, value.rank - 2)


def dense(builder: Builder, name: str, value: Value, kernel: Array, bias: Array | None) -> Value:
    """Build a layer that sums over the last ONNX axis."""
    if value.order is None:
        value = builder.moved_last(value, -1)
        attention = attended(builder, name, value.tensor, kernel, bias)
        if attention is not None:
            return Value(attention, value.axes)
    layer = keras.layers.Dense(kernel.shape[1], use_bias=bias is not None, name=name)
    result = layer(value.tensor)
    set_weights(layer, kernel if value.order is None else kernel[value.order], bias)
    return Value(result, value.axes)


def _product_with_constants(
    builder: Builder, value: Value, matrices: Array, constant_first: bool = False
) -> Value:
    """Build a product of each matrix in a tensor's last two axes with a constant one."""
    value = builder.as_in_onnx(value)
    differ = matrices.ndim == value.rank and len(matrices) != 1
    if value.batch != 0 or value.rank < 3 or matrices.ndim > value.rank or differ:
        raise UnsupportedNodeError("multiplies examples of a batch by different constants")
    operands = (matrices, value.tensor) if constant_first else (value.tensor, matrices)
    return value.with_tensor(keras.ops.matmul(*operands))


def product(builder: Builder, left: Value, right: Value) -> Value:
    """Build a product of the last two axes of two tensors with equal other axes."""
    if left.rank != right.rank or left.batch != right.batch or left.batch >= left.rank - 2:
        raise UnsupportedNodeError("multiplies tensors whose batches are on different axes")
    left, right = builder.as_in_onnx(left), builder.as_in_onnx(right)
    return Value(keras.ops.matmul(left.tensor, right.tensor), left.axes)
