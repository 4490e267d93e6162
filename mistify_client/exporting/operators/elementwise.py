"""Operators that work on each entry, and fused activations."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from mistify_client.exporting.broadcasting import together
from mistify_client.exporting.builder import Builder
from mistify_client.exporting.errors import NotExportableError
from mistify_client.exporting.registry import Call, operator
from mistify_client.exporting.types import onnx_type
from mistify_client.exporting.values import Value

_Activation: Final = schema.ActivationFunctionType

#: Operator of LiteRT -> of ONNX, for those of one tensor.
_OF_ONE: Final[Mapping[str, str]] = {
    "ABS": "Abs", "CEIL": "Ceil", "COS": "Cos", "ELU": "Elu", "EXP": "Exp", "FLOOR": "Floor",
    "HARD_SWISH": "HardSwish", "LOG": "Log", "LOGICAL_NOT": "Not", "LOGISTIC": "Sigmoid", "NEG": "Neg",
    "RELU": "Relu", "ROUND": "Round", "SIGN": "Sign", "SIN": "Sin", "SQRT": "Sqrt", "TANH": "Tanh",
}  # fmt: skip

#: The same for those of two tensors.
_OF_TWO: Final[Mapping[str, str]] = {
    "ADD": "Add", "DIV": "Div", "EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual",
    "LESS": "Less", "LESS_EQUAL": "LessOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or", "MAXIMUM": "Max",
    "MINIMUM": "Min", "MUL": "Mul", "POW": "Pow", "PRELU": "PRelu", "SUB": "Sub",
}  # fmt: skip

#: Operator -> least and largest value of its results.
_CLIPPED: Final[Mapping[str, tuple[float, float]]] = {
    "RELU6": (0.0, 6.0), "RELU_0_TO_1": (0.0, 1.0), "RELU_N1_TO_1": (-1.0, 1.0),
}  # fmt: skip

#: Operators without negative results.
_NOT_NEGATIVE: Final = ("ABS", "EXP", "LOGISTIC", "RELU", "RELU6", "RELU_0_TO_1", "SQRT")

_FUSED: Final[Mapping[int, str]] = {
    _Activation.RELU: "RELU", _Activation.RELU6: "RELU6", _Activation.RELU_N1_TO_1: "RELU_N1_TO_1",
    _Activation.TANH: "TANH",
}  # fmt: skip


def activated(builder: Builder, call: Call, value: Value) -> Value:
    """Return a result after the operator's fused activation.

    Raises:
        NotExportableError: ONNX has no such activation.
    """
    fused = getattr(call.options, "fusedActivationFunction", _Activation.NONE)
    if fused == _Activation.NONE:
        return value
    if fused not in _FUSED:
        raise NotExportableError(f"its activation has the number {fused}")
    return _of_one(builder, _FUSED[fused], value)


def _of_one(builder: Builder, kind: str, value: Value) -> Value:
    if kind in _CLIPPED:
        least, most = (np.array(limit, np.float32) for limit in _CLIPPED[kind])
        name = builder.node("Clip", value, least, most)
    else:
        name = builder.node(_OF_ONE[kind], value)
    if kind in _NOT_NEGATIVE:
        builder.not_negative.add(name)
    return value.like(name)


@operator(*_OF_ONE, *_CLIPPED)
def unary(builder: Builder, call: Call) -> Value:
    """Write a function of one tensor."""
    return _of_one(builder, call.kind, builder.value(call.argument(0)))


@operator(*_OF_TWO)
def binary(builder: Builder, call: Call) -> Value:
    """Write a function of two tensors, which are broadcast."""
    (first, second), made = together(builder, call, 0, 1)
    return activated(builder, call, made(builder.node(_OF_TWO[call.kind], first, second)))


@operator("NOT_EQUAL")
def not_equal(builder: Builder, call: Call) -> Value:
    """Write an inequality."""
    (first, second), made = together(builder, call, 0, 1)
    return made(builder.node("Not", builder.node("Equal", first, second)))


@operator("SQUARED_DIFFERENCE")
def squared_difference(builder: Builder, call: Call) -> Value:
    """Write the square of a difference."""
    (first, second), made = together(builder, call, 0, 1)
    difference = builder.node("Sub", first, second)
    return made(builder.node("Mul", difference, difference))


@operator("FLOOR_MOD", "FLOOR_DIV")
def floored(builder: Builder, call: Call) -> Value:
    """Write a division that rounds down, or its rest."""
    (first, second), made = together(builder, call, 0, 1)
    quotient = builder.node("Div", first, second)
    if not np.issubdtype(call.types[0], np.floating):
        raise NotExportableError("ONNX rounds the quotients of integers towards zero")
    quotient = builder.node("Floor", quotient)
    if call.kind == "FLOOR_DIV":
        return made(quotient)
    return made(builder.node("Sub", first, builder.node("Mul", quotient, second)))


@operator("SELECT", "SELECT_V2")
def select(builder: Builder, call: Call) -> Value:
    """Write a choice between two tensors."""
    inputs, made = together(builder, call, 0, 1, 2)
    return made(builder.node("Where", *inputs))


@operator("SQUARE")
def square(builder: Builder, call: Call) -> Value:
    """Write a square."""
    value = builder.value(call.argument(0))
    return value.like(builder.node("Mul", value, value))


@operator("RSQRT")
def inverse_root(builder: Builder, call: Call) -> Value:
    """Write the inverse of a square root."""
    value = builder.value(call.argument(0))
    return value.like(builder.node("Reciprocal", builder.node("Sqrt", value)))


@operator("LEAKY_RELU")
def leaky_relu(builder: Builder, call: Call) -> Value:
    """Write a ReLU with a slope for negative numbers."""
    value = builder.value(call.argument(0))
    return value.like(builder.node("LeakyRelu", value, alpha=float(call.options.alpha)))


@operator("GELU")
def gelu(builder: Builder, call: Call) -> Value:
    """Write a GELU as exporters do: ONNX has an operator for it only since version 20."""
    value = builder.value(call.argument(0))
    half, one, two = (np.array(number, np.float32) for number in (0.5, 1, 2))
    if call.options.approximate:
        cubic = builder.node("Mul", builder.node("Mul", value, value), np.array(0.044715, np.float32))
        inner = builder.node("Mul", value, builder.node("Add", cubic, one))
        scaled = builder.node("Mul", inner, np.sqrt(2 / np.pi).astype(np.float32))
        curve = builder.node("Tanh", scaled)
    else:
        curve = builder.node("Erf", builder.node("Div", value, np.sqrt(two)))
    grown = builder.node("Mul", value, builder.node("Add", curve, one))
    return value.like(builder.node("Mul", grown, half))


@operator("CAST")
def cast(builder: Builder, call: Call) -> Value:
    """Write a change of the type."""
    value = builder.value(call.argument(0))
    return value.like(builder.node("Cast", value, to=onnx_type(call.types[0])))
