"""Integers with the ranges of a source that was quantized before."""

from pathlib import Path

import keras
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from mistify.config.package.quantization import QuantizationConfig
from mistify.tflite.combining import read_network
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import Runner

layers = keras.layers

INT8 = QuantizationConfig.model_validate("int8")


def test_outputs_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    """The file was calibrated with images that are three times as bright as those of the training data."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from executors.sources.onnx.loading import read_onnx
    from tests.executors.sources.onnx.test_quantized import images, residual
    from tests.support.onnx_files import outputs_of, quantized

    source = residual(tmp_path / "float.onnx", output="k")
    rows = ({"x": row[None]} for row in images(60, 3.0))
    path = quantized(source, tmp_path / "net.onnx", rows, per_channel=True)
    network, _, ranges = read_onnx(path)
    inputs = images(30, seed=1)
    (expected,) = outputs_of(path, {"x": inputs})
    examples, shown = ({"x": np.moveaxis(data, 1, -1)} for data in (images(100), inputs))
    step = (ranges["k"][1] - ranges["k"][0]) / 255
    kept, calibrated = (
        np.mean(np.abs(Runner(convert(network, INT8, examples, own))(shown)["k"] - expected) < step / 2)
        for own in (ranges, None)
    )
    assert kept > 0.99
    assert calibrated < 0.9


def activation_scales(network: bytes) -> list[float]:
    """Return the scales of the integers that the first graph computes."""
    model = read_network(network)
    computed = [
        tensor
        for tensor in model.subgraphs[0].tensors
        if tensor.type == schema.TensorType.INT8 and model.buffers[tensor.buffer].data is None
    ]
    return [float(tensor.quantization.scale[0]) for tensor in computed]


def test_only_the_result_of_a_layer_has_its_range() -> None:
    """A SiLU is a product with a sigmoid, which has a tensor of its own."""
    x = keras.Input((8,), name="x")
    hidden = layers.Activation("silu", name="silu")(layers.Dense(8, name="first")(x))
    model = keras.Model(x, layers.Dense(4, name="y")(hidden))
    examples = {"x": np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)}
    before = activation_scales(convert(model, INT8, examples))
    scales = activation_scales(convert(model, INT8, examples, {"silu": (-1.0, 101.0), "other": (0.0, 9.0)}))
    assert len(scales) == len(before)
    assert [scale for scale in scales if scale not in before] == [pytest.approx(0.4)]


def test_inputs_and_outputs_have_their_ranges() -> None:
    x = keras.Input((8,), name="x")
    model = keras.Model(x, layers.Identity(name="y")(layers.Dense(4)(x)))
    examples = {"x": np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)}
    quantization = QuantizationConfig.model_validate({"precision": "int8", "inputs": "int8"})
    network = convert(model, quantization, examples, {"x": (-51.0, 51.0), "y": (0.0, 25.5)})
    assert sorted(activation_scales(network)) == pytest.approx([0.1, 0.4])
