"""Functions of single entries, and operators that change nothing."""

import keras
import numpy as np
from onnx import TensorProto

from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.kinds import KERAS_TYPES
from executors.sources.onnx.registry import Argument, Node, constant, operator, optional, tensor
from executors.sources.onnx.values import Value

#: Operator -> function of `keras.ops`.
_FUNCTIONS = {
    "Abs": "abs",
    "Ceil": "ceil",
    "Cos": "cos",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "log",
    "Neg": "negative",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Sqrt": "sqrt",
}
_NOT_NEGATIVE = ("Abs", "Exp", "Sqrt")

#: Type in the file -> type in Keras. Halves are computed in float32.
_TYPES = {
    **KERAS_TYPES,
    TensorProto.FLOAT16: "float32",
    TensorProto.BFLOAT16: "float32",
    TensorProto.BOOL: "bool",
}


@operator(*_FUNCTIONS)
def function(builder: Builder, node: Node, data: Argument) -> Value:
    """Apply a function to each entry."""
    value = tensor(data)
    apply = getattr(keras.ops, _FUNCTIONS[node.operator])
    return value.with_tensor(apply(value.tensor), not_negative=node.operator in _NOT_NEGATIVE)


@operator("Identity")
def unchanged(builder: Builder, node: Node, data: Argument) -> Value:
    """Return the data."""
    return tensor(data)


@operator("Dropout")
def dropout(
    builder: Builder, node: Node, data: Argument, rate: Argument = None, training: Argument = None
) -> list[Value]:
    """Return the data, and a mask that keeps all of them."""
    trains = optional(training, "training_mode")
    if trains is not None and np.any(trains) and np.any(0.5 if rate is None else constant(rate, "rate")):
        raise UnsupportedNodeError("is in training mode; export the model with model.eval()")
    value = tensor(data)
    if not any(node.read[1:]):
        return [value]
    magnitudes = keras.ops.abs(value.tensor)
    return [value, value.with_tensor(keras.ops.greater_equal(magnitudes, 0.0))]


@operator("Cast")
def cast(builder: Builder, node: Node, data: Argument) -> Value:
    """Convert the data to another type, unless both are floats or both are integers."""
    value, kind = tensor(data), _TYPES.get(node.get("to"))
    if kind is None:
        named = TensorProto.DataType.Name(node.get("to"))
        raise UnsupportedNodeError(f"casts to {named}, which is neither a usual number nor a truth value")
    if value.tensor.dtype == kind:
        return value
    return value.with_tensor(keras.ops.cast(value.tensor, kind), not_negative=value.not_negative)
