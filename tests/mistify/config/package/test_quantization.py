"""The setting `quantization`, and the axes that a precision limits."""

import json
from typing import Any

import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.config.reading import goal_budget, goal_path, parse_batch
from mistify.costs.budget import hardware_of, memory_axis, quantity_of, size_axis, source_axis
from mistify.costs.quantization import STORED, Quantization
from mistify.errors import MistifyError

SOURCE = {"memory_bytes": 4e5, "size_bytes": 3e5, "memory_bytes@int8": 1e5, "latency_ms@host": 2.0}


def config(quantization: object = None, **goal: object) -> str:
    arguments: dict[str, Any] = {
        "id": "a",
        "model": "m",
        "dataset": {"train": "t", "test": "t"},
        "adaptation_goal": goal or {"memory": "0.5x"},
    }
    return json.dumps(arguments if quantization is None else {**arguments, "quantization": quantization})


def precision_of(quantization: object = None) -> QuantizationConfig:
    (parsed,) = parse_batch(config(quantization))
    return parsed.quantization


def test_the_default_precision_is_float32() -> None:
    assert precision_of() == QuantizationConfig(precision=Quantization.NONE, inputs="float32")


@pytest.mark.parametrize("name", ["none", "float16", "dynamic", "int8", "int8-qat"])
def test_a_precision_is_a_name_or_an_object(name: str) -> None:
    assert precision_of(name) == precision_of({"precision": name})
    assert precision_of(name).precision.value == name


def test_integer_packages_take_floats_or_integers() -> None:
    assert precision_of("int8").inputs == "float32"
    assert precision_of({"precision": "int8-qat", "inputs": "int8"}).inputs == "int8"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("int9", r'\[0\].quantization: got "int9"; expected one of auto, dynamic, .*did you mean "int8"'),
        ({"precision": "in8"}, r'\[0\].quantization.precision: got "in8"; .*did you mean "int8"'),
        ({"precision": 8}, r'\[0\].quantization.precision: got 8; expected a precision; .*"int8"'),
        ({"inputs": "int8"}, r"\[0\].quantization: .*expected float32 inputs .* of precision none"),
        ({"precision": "dynamic", "inputs": "int8"}, "of precision dynamic"),
        ({"precision": "auto", "inputs": "int8"}, "of precision auto"),
        (
            {"precision": "int8", "inputs": "uint8"},
            r'inputs: got "uint8"; .*"float32" or "int8"',
        ),
        ({"precision": "int8", "bits": 4}, 'the key "bits"; expected one of inputs, precision'),
        (8, r"\[0\].quantization: got 8; expected an object"),
    ],
)
def test_mistakes_are_reported_at_their_places(arguments: object, message: str) -> None:
    with pytest.raises(MistifyError, match=message):
        parse_batch(config(arguments))


def test_limits_on_memory_and_size_are_on_axes_of_the_precision() -> None:
    assert [memory_axis(precision) for precision in (*STORED, Quantization.INT8_QAT)] == [
        "memory_bytes",
        "memory_bytes@float16",
        "memory_bytes@dynamic",
        "memory_bytes@int8",
        "memory_bytes@int8",
    ]
    assert size_axis(Quantization.INT8_QAT) == "size_bytes@int8"
    assert hardware_of("memory_bytes@int8") is None
    assert quantity_of("memory_bytes@int8") == quantity_of("memory_bytes") == "memory_bytes"
    assert goal_path("size_bytes@float16") == "adaptation_goal.size"
    assert source_axis("latency_ms@host") == "latency_ms@host"


@pytest.mark.parametrize(
    ("quantization", "memory"),
    [
        ("int8", "memory_bytes@int8"),
        ("int8-qat", "memory_bytes@int8"),
        ({"precision": "int8", "inputs": "int8"}, "memory_bytes@int8-inputs"),  # no copies in floats
    ],
)
def test_limits_are_on_the_axes_of_the_package_and_relative_to_float32(
    quantization: object, memory: str
) -> None:
    goal = {"memory": "0.5x", "size": "0.1x", "latency": "0.5x", "FLOP": 100}
    (parsed,) = parse_batch(config(quantization, **goal))
    assert goal_budget(parsed, SOURCE) == {
        memory: 2e5,
        "size_bytes@int8": 3e4,
        "latency_ms@host@int8": 1.0,
        "flops": 100.0,
    }
