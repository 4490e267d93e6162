"""Products of matrices."""

import numpy as np

from mistify_client.exporting.builder import Builder
from mistify_client.exporting.operators.elementwise import activated
from mistify_client.exporting.registry import Call, operator
from mistify_client.exporting.values import Array, Value, in_order


@operator("FULLY_CONNECTED")
def fully_connected(builder: Builder, call: Call) -> Value:
    """Write a product with a kernel [output, input], of any number of rows."""
    value = builder.value(call.argument(0))
    kernel = call.argument(1)
    if isinstance(kernel, Value):
        return _computed(builder, call, value, kernel)
    bias = None if call.optional(2) is None else call.constant(2).reshape(-1)
    width = kernel.shape[1]
    # A tensor whose rows were merged only for this product is multiplied as it was.
    source = builder.source(value)
    if source.rank > 2 and source.shape[-1] == width and source.shape[0] != value.shape[0]:
        value = source
    elif value.shape[-1] != width:
        value = builder.reshaped(value, (*call.shape[:-1], width))
    made = _product(builder, value, kernel, bias)
    return activated(builder, call, builder.reshaped(made, call.shape))


def _product(builder: Builder, value: Value, kernel: Array, bias: Array | None) -> Value:
    """Write a product with the last axis of a tensor."""
    shape = (*value.shape[:-1], kernel.shape[0])
    if value.order is not None:
        kernel = kernel[:, value.order]
    elif value.rank > 3 and value.axes[0] == 0 and value.position(-1) == 1:
        ones = (1,) * (value.rank - 2)
        name = builder.layer("Conv", value, kernel.reshape(*kernel.shape, *ones), bias, kernel_shape=ones)
        return Value(name, shape, value.axes)
    if value.position(-1) != value.rank - 1:
        value = builder.as_in_litert(value)
    if value.rank == 2:
        return Value(builder.layer("Gemm", value, kernel, bias, transB=1), shape, in_order(2))
    name = builder.layer("MatMul", value, np.ascontiguousarray(kernel.T))
    if bias is not None:
        name = builder.node("Add", name, bias)
    return Value(name, shape, value.axes)


def _computed(builder: Builder, call: Call, value: Value, kernel: Value) -> Value:
    """Write a product of two computed tensors."""
    turned = builder.arranged(kernel, (1, 0))
    name = builder.node("MatMul", builder.as_in_litert(value), turned)
    bias = call.optional(2)
    if bias is not None:
        name = builder.node("Add", name, builder.value(bias))
    return activated(builder, call, Value(name, call.shape, in_order(len(call.shape))))


@operator("BATCH_MATMUL")
def product(builder: Builder, call: Call) -> Value:
    """Write products of matrices, either of which may be transposed."""
    turned = call.options.adjX, call.options.adjY
    factors = []
    for number, turn in enumerate(turned):
        value = builder.plain(call.argument(number))
        *batch, rows, columns = in_order(value.rank)
        factors.append(builder.arranged(value, (*batch, columns, rows) if turn else (*batch, rows, columns)))
    return Value(builder.node("MatMul", *factors), call.shape, in_order(len(call.shape)))


@operator("EMBEDDING_LOOKUP")
def embedding(builder: Builder, call: Call) -> Value:
    """Write the rows of a table by their numbers."""
    numbers, table = builder.as_in_litert(call.argument(0)), call.constant(1)
    return Value(builder.node("Gather", table, numbers, axis=0), call.shape, in_order(len(call.shape)))
