"""Arithmetic and comparisons of two tensors, or of a tensor and a constant."""

from typing import Any

import keras
import numpy as np

from executors.sources.onnx.batch import Array
from executors.sources.onnx.builder import Builder, as_float, count, set_weights
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.operators.activations import activated
from executors.sources.onnx.operators.places import numbered_by_example
from executors.sources.onnx.registry import Argument, Node, constant, operator, tensor
from executors.sources.onnx.values import Places, Value
from executors.structure import keras_internals

layers = keras.layers

#: Operator -> layer, for two float tensors.
_LAYERS = {
    "Add": layers.Add,
    "Max": layers.Maximum,
    "Min": layers.Minimum,
    "Mul": layers.Multiply,
    "Sub": layers.Subtract,
    "Sum": layers.Add,
}

#: Operator -> function of `keras.ops`.
_FUNCTIONS = {
    "Add": "add",
    "And": "logical_and",
    "Div": "divide",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Max": "maximum",
    "Min": "minimum",
    "Mod": "mod",
    "Mul": "multiply",
    "Or": "logical_or",
    "Pow": "power",
    "Sub": "subtract",
    "Sum": "add",
    "Xor": "not_equal",
}

#: Operators whose layers take a factor or an offset for each output channel.
_LINEAR = ("Conv", "Gemm", "MatMul")
_DEPTHWISE = (layers.DepthwiseConv1D, layers.DepthwiseConv2D)
_ATTENTION = (layers.GroupQueryAttention, layers.MultiHeadAttention)
_LINEAR_LAYERS = (
    *(*_ATTENTION, *_DEPTHWISE),
    *(layers.Conv1D, layers.Conv2D, layers.Conv3D, layers.Dense),
)

#: Activation in a product `x * activation(x)` -> activation equal to the product.
_GATES = {keras.activations.sigmoid: "silu", keras.activations.hard_sigmoid: "hard_silu"}


@operator(*_FUNCTIONS)
def arithmetic(builder: Builder, node: Node, *arguments: Argument) -> Value | Places:
    """Combine tensors and constants, entry by entry."""
    places = numbered_by_example(builder, node, arguments) if node.operator == "Add" else None
    if places is not None:
        return places
    if len(arguments) == 1:
        return tensor(arguments[0])
    if len(arguments) > 2:
        # The order does not matter to operators of more than two inputs.
        first, *others = sorted(arguments, key=lambda argument: not isinstance(argument, Value))
        result: Any = first
        for other in others:
            result = arithmetic(builder, node, result, other)
        return tensor(result)
    left, right = arguments
    if node.operator == "Pow":
        left, right = _power_of_floats(left, right)
    if isinstance(left, Value) and isinstance(right, Value):
        return _of_tensors(builder, node, left, right)
    if isinstance(left, Value):
        return _with_constant(builder, node, left, constant(right, "operand"))
    return _with_constant(builder, node, tensor(right), constant(left, "operand"), constant_first=True)


def _power_of_floats(base: Argument, exponent: Argument) -> tuple[Argument, Argument]:
    """Return a base of floats and its exponents as floats."""
    if (base.tensor if isinstance(base, Value) else constant(base, "base")).dtype in ("int32", "int64"):
        raise UnsupportedNodeError("raises integers to a power; expected floats")
    if isinstance(exponent, Value) and exponent.tensor.dtype == "int32":
        exponent = exponent.with_tensor(keras.ops.cast(exponent.tensor, "float32"))
    return base, exponent


@operator("Where")
def where(builder: Builder, node: Node, condition: Argument, left: Argument, right: Argument) -> Value:
    """Choose between two inputs, entry by entry."""
    arguments = (condition, left, right)
    values = [argument for argument in arguments if isinstance(argument, Value)]
    like = max(values, key=lambda value: (value.rank, count(value.shape)))
    if any(value.rank != like.rank for value in values):
        raise UnsupportedNodeError("combines tensors of different ranks")

    def placed(argument: Argument) -> Any:
        if isinstance(argument, Value):
            return builder.laid_out(argument, like.axes).tensor
        return builder.constant(constant(argument, "operand"), like)

    like = builder.ordered(like)
    return like.with_tensor(keras.ops.where(*map(placed, arguments)))


def _of_tensors(builder: Builder, node: Node, left: Value, right: Value) -> Value:
    gated = _gated(builder, node, left, right)
    if gated is not None:
        return gated
    if left.rank != right.rank or left.batch != right.batch:
        raise UnsupportedNodeError("combines tensors whose batches are on different axes")
    left, right = _aligned(builder, left, right)
    like = left if count(left.tensor.shape) >= count(right.tensor.shape) else right
    make = _LAYERS.get(node.operator)
    if make is not None and left.tensor.dtype == right.tensor.dtype == "float32":
        result = make(name=builder.plain(node))([left.tensor, right.tensor])
    else:
        result = _combined(node, left.tensor, right.tensor)
    keeps_sign = node.operator in ("Add", "Mul", "Max", "Min", "Sum")
    return like.with_tensor(result, not_negative=keeps_sign and left.not_negative and right.not_negative)


def _gated(builder: Builder, node: Node, left: Value, right: Value) -> Value | None:
    """Return `x * sigmoid(x)` as a single activation; None if the product is another one."""
    if node.operator != "Mul":
        return None
    for value, gate in ((left, right), (right, left)):
        call = keras_internals.making_call(gate.tensor)
        function = _GATES.get(getattr(call.operation, "activation", None))
        if function is not None and isinstance(call.operation, layers.Activation):
            (read,) = call.arguments.keras_tensors
            if read is value.tensor and gate.axes == value.axes:
                return activated(builder, node, value, function)
    return None


def _aligned(builder: Builder, left: Value, right: Value) -> tuple[Value, Value]:
    """Return two tensors with their axes at the same positions: where those of the larger one stand."""
    if left.order is not None or right.order is not None:
        alike = left.order is not None and right.order is not None and np.array_equal(left.order, right.order)
        if not alike or left.axes != right.axes:
            left, right = builder.ordered(left), builder.ordered(right)
    if left.axes == right.axes:
        return left, right
    like = left if count(left.shape) >= count(right.shape) else right
    return builder.laid_out(left, like.axes), builder.laid_out(right, like.axes)


def _with_constant(
    builder: Builder, node: Node, value: Value, array: Array, constant_first: bool = False
) -> Value:
    """Combine a tensor with a constant that does not enlarge it."""
    kind = node.operator
    enlarges = any(
        size not in (1, own or 1)
        for size, own in zip(reversed(array.shape), reversed(value.shape), strict=False)
    )
    if enlarges:
        value = builder.ordered(value)
    elif array.dtype.kind == "f" and value.tensor.dtype == "float32":
        affine = _affine(kind, as_float(array), constant_first)
        result = None if affine is None else _scaled(builder, node, value, *affine)
        if result is not None:
            return result
    if kind == "Pow" and not constant_first and array.size == 1 and float(array.reshape(-1)[0]) == 2:
        return value.with_tensor(keras.ops.square(value.tensor), not_negative=True)
    placed: Any = builder.constant(array, value)
    placed = placed.reshape(-1)[0].item() if placed.size == 1 else placed
    operands = (placed, value.tensor) if constant_first else (value.tensor, placed)
    return value.with_tensor(_combined(node, *operands))


def _combined(node: Node, left: Any, right: Any) -> Any:
    """Apply a function of `keras.ops` to two operands, at least one of which is a tensor."""
    tensor_ = left if isinstance(left, keras.KerasTensor) else right
    if node.operator == "Div" and tensor_.dtype == "int32":
        return _quotient(left, right)
    if node.operator == "Mod" and node.get("fmod", 0):
        return _remainder(left, right)
    return getattr(keras.ops, _FUNCTIONS[node.operator])(left, right)


def _quotient(left: Any, right: Any) -> Any:
    """Return quotients of integers, which ONNX rounds towards zero."""
    signs, sizes = zip(*map(_sign_and_size, (left, right)), strict=True)
    return keras.ops.multiply(keras.ops.multiply(*signs), keras.ops.floor_divide(*sizes))


def _remainder(left: Any, right: Any) -> Any:
    """Return remainders with the sign of the dividend."""
    (sign, dividend), (_, divisor) = map(_sign_and_size, (left, right))
    return keras.ops.multiply(sign, keras.ops.mod(dividend, divisor))


def _sign_and_size(operand: Any) -> tuple[Any, Any]:
    functions: Any = keras.ops if isinstance(operand, keras.KerasTensor) else np
    return functions.sign(operand), functions.abs(operand)


def _affine(kind: str, array: Array, constant_first: bool) -> tuple[Array, Array] | None:
    """Return the factor and the offset of an operator with a constant; None for other operators."""
    none, zero = np.ones_like(array), np.zeros_like(array)
    match kind:
        case "Add" | "Sum":
            return none, array
        case "Mul":
            return array, zero
        case "Sub":
            return (-none, array) if constant_first else (none, -array)
        case "Div" if not constant_first and np.all(array != 0):
            return 1 / array, zero
    return None


def _scaled(builder: Builder, node: Node, value: Value, factor: Array, offset: Array) -> Value | None:
    """Return the value with a factor and an offset for each channel; None if they vary along other axes.

    They become part of the layer that makes the value, if nothing else reads it.
    """
    factors, offsets = (builder.per_channel(array, value) for array in (factor, offset))
    if factors is None or offsets is None:
        return None
    if np.all(factors == 1) and not np.any(offsets):
        return value
    alone = any(
        maker in _LINEAR and readers == 1 for maker, readers in zip(node.makers, node.readers, strict=True)
    )
    if alone and isinstance(keras_internals.maker(value.tensor), _LINEAR_LAYERS):
        return value.with_tensor(_merged(value.tensor, factors, offsets))
    settings = (vector.tolist() if np.ptp(vector) else float(vector[0]) for vector in (factors, offsets))
    return value.with_tensor(layers.Rescaling(*settings, name=builder.plain(node))(value.tensor))


def _merged(made: Any, factors: Array, offsets: Array) -> Any:
    """Return the output of a linear layer with a factor and an offset for each output channel."""
    call = keras_internals.making_call(made)
    if isinstance(call.operation, _ATTENTION):
        *inner, kernel, bias = call.operation.get_weights()
        layer = type(call.operation).from_config(call.operation.get_config())
        result = layer(*call.arguments.args, **call.arguments.kwargs)
        set_weights(layer, *inner, kernel * factors, bias * factors + offsets)
        return result
    kernel, *biases = call.operation.get_weights()
    by_channel = factors.reshape(kernel.shape[-2:]) if isinstance(call.operation, _DEPTHWISE) else factors
    has_bias = bool(biases) or bool(np.any(offsets))
    bias = (biases[0] * factors if biases else 0.0) + offsets
    layer = type(call.operation).from_config({**call.operation.get_config(), "use_bias": has_bias})
    result = layer(*call.arguments.keras_tensors)
    set_weights(layer, kernel * by_channel, bias if has_bias else None)
    return result
