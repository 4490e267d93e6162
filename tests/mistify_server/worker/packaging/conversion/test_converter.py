"""Converted networks, compared with their models at every precision."""

import keras
import numpy as np
import pytest
from ai_edge_litert.tools import flatbuffer_utils

from executors.structure import analyse, at_resolution, fold_batch_norm, narrow
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import STORED
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import Runner, run_network
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import images, network, operators

layers = keras.layers
EXAMPLES = {"image": images(100)}


def converted_as(model, quantization):
    return convert(model, QuantizationConfig.model_validate(quantization), EXAMPLES)


@pytest.fixture(scope="module")
def model():
    return network(width=40)


@pytest.fixture(scope="module")
def converted(model):
    return convert(model)


@pytest.fixture(scope="module")
def int8(model):
    return converted_as(model, {"precision": "int8", "inputs": "int8"})


@pytest.mark.parametrize("batch", [1, 2, 33])
def test_a_converted_network_equals_its_model(model, converted, batch):
    actual = run_network(converted, {"image": images(batch)})["scores"]
    assert actual.shape == (batch, 3)
    np.testing.assert_allclose(actual, model.predict(images(batch), verbose=0), atol=1e-5)


def test_batch_norm_is_folded(converted):
    assert sorted(name for name, _ in operators(converted)) == [
        "ADD", "CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MEAN", "SOFTMAX"
    ]  # fmt: skip


def test_a_converted_network_is_not_larger_than_one_without_batch_norm(model, converted):
    folded = fold_batch_norm(model)
    assert not any(isinstance(layer, layers.BatchNormalization) for layer in folded.layers)
    plain = keras.models.clone_model(folded)
    plain.set_weights(folded.get_weights())
    assert abs(len(converted) - len(convert(plain))) < 64


def test_the_converted_model_is_not_changed(model):
    before = [weight.copy() for weight in model.get_weights()]
    convert(model)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


@pytest.mark.sampled
@pytest.mark.parametrize(("precision", "near"), [("none", 1e-5), ("int8", 0.05)])
def test_a_network_that_downscales_images_accepts_the_original_ones(model, precision, near):
    smaller = narrow(at_resolution(analyse(model), 0.75), {})
    converted = converted_as(smaller, {"precision": precision})
    actual = run_network(converted, {"image": images(9)})["scores"]
    np.testing.assert_allclose(actual, smaller.predict(images(9), verbose=0), atol=near)


@pytest.mark.parametrize("batch", [1, 9])
def test_an_int8_network_is_close_to_its_model(model, int8, batch):
    actual = run_network(int8, {"image": images(batch)})["scores"]
    np.testing.assert_allclose(actual, model.predict(images(batch), verbose=0), atol=0.05)


def test_an_int8_network_computes_only_with_integers(int8):
    assert {kind for _, kind in operators(int8)} == {"INT8"}
    assert {name for name, _ in operators(int8)}.isdisjoint({"QUANTIZE", "DEQUANTIZE"})


def test_int8_weights_are_the_folded_ones_quantized_per_channel(model, int8):
    """Quantization is symmetric: the largest weight of an output channel becomes 127 or -127."""
    folded = fold_batch_norm(model)
    kernels = [np.asarray(layer.kernel) for layer in folded.layers if type(layer) is layers.Conv2D]
    actual = quantized_weights(int8, "CONV_2D")
    assert len(actual) == len(kernels) == 2
    for (stored, scales), kernel in zip(actual, kernels, strict=True):
        wanted = kernel.transpose(3, 0, 1, 2)
        largest = np.abs(wanted).max(axis=(1, 2, 3))
        np.testing.assert_allclose(scales, largest / 127, rtol=1e-5)
        assert stored.dtype == np.int8
        error = np.abs(stored * scales[:, None, None, None] - wanted)
        assert (error <= scales[:, None, None, None] * 0.501).all()


def quantized_weights(network, operator_name):
    """Return weights [C_out, height, width, C_in] and scales [C_out] of all operators with a name."""
    model = flatbuffer_utils.read_model_from_bytearray(network)
    graph = model.subgraphs[0]
    actual = []
    for operator in graph.operators:
        if flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) == operator_name:
            tensor = graph.tensors[operator.inputs[1]]
            content = np.asarray(model.buffers[tensor.buffer].data, np.uint8).view(np.int8)
            actual.append((content.reshape(tensor.shape), np.asarray(tensor.quantization.scale)))
    return actual


def test_integers_have_the_scale_of_their_values(int8):
    runner = Runner(int8)
    image, scores = runner.inputs["image"], runner.outputs["scores"]
    assert (image.dtype, image.shape, image.zero_point) == ("int8", (-1, 8, 8, 2), -128)
    assert image.scale == pytest.approx(1 / 255, rel=0.01)
    assert (scores.dtype, scores.scale, scores.zero_point) == ("int8", 1 / 256, -128)


def test_an_int8_network_may_have_float_inputs_and_outputs(model):
    runner = Runner(converted_as(model, "int8"))
    assert runner.inputs["image"].dtype == runner.outputs["scores"].dtype == "float32"
    assert runner.inputs["image"].scale is None


@pytest.mark.sampled
@pytest.mark.parametrize("precision", STORED)
def test_the_size_matches_the_prediction(precision):
    wide = network(width=250)
    size = len(converted_as(wide, precision))
    assert size == pytest.approx(analyse(wide).network().size_bytes(precision), rel=0.05)


RECURRENT = {
    "simple": lambda: layers.SimpleRNN(48),
    "gru": lambda: layers.GRU(48),
    "lstm": lambda: layers.LSTM(48),
    "two directions": lambda: layers.Bidirectional(layers.LSTM(48)),
}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "precision"),
    [(kind, STORED[0]) for kind in RECURRENT]
    + [(kind, as_) for kind in ("gru", "lstm") for as_ in STORED[1:]],
)
def test_the_size_of_unrolled_layers_matches_the_prediction(kind, precision):
    """The converter unrolls the time steps of recurrent layers in the file."""
    inputs = keras.Input((20, 16), name="steps")
    source = keras.Model(inputs, layers.Dense(3)(RECURRENT[kind]()(inputs)))
    unrolled = narrow(analyse(source), {})
    steps = np.random.default_rng(0).normal(size=(50, 20, 16)).astype(np.float32)
    size = len(convert(unrolled, QuantizationConfig(precision=precision), {"steps": steps}))
    assert size == pytest.approx(analyse(unrolled).network().size_bytes(precision), rel=0.05)


@pytest.mark.parametrize("precision", ["none", "int8"])
def test_an_empty_text_causes_no_division_by_zero(precision):
    """Otherwise, LiteRT could not run it in int8, nor convert it with a fixed batch size."""
    ids = keras.Input((6,), dtype="int32", name="ids")
    mean = layers.GlobalAveragePooling1D()(layers.Embedding(9, 8, mask_zero=True)(ids))
    texts = np.random.default_rng(0).integers(1, 9, size=(20, 6)).astype(np.int32)
    network = convert(
        randomised(keras.Model(ids, layers.Dense(3, name="class")(mean))),
        QuantizationConfig(precision=precision),
        {"ids": texts},
    )
    texts[0] = 0
    assert np.isfinite(Runner(network)({"ids": texts})["class"]).all()


def two_by_two():
    """Return a network with two inputs, one of tokens, and two outputs, neither in alphabetical order."""
    tokens = keras.Input((5,), dtype="int32", name="tokens")
    image = keras.Input((8, 8, 2), name="image")
    x = layers.Concatenate()(
        [
            layers.GlobalAveragePooling1D()(layers.Embedding(10, 6)(tokens)),
            layers.GlobalAveragePooling2D()(layers.Conv2D(6, 3, activation="relu")(image)),
        ]
    )
    outputs = [layers.Dense(3, "softmax", name="slots")(x), layers.Dense(2, name="intent")(x)]
    return randomised(keras.Model([tokens, image], outputs))


@pytest.mark.sampled
@pytest.mark.parametrize("quantization", ["none", {"precision": "int8", "inputs": "int8"}])
def test_inputs_and_outputs_have_the_names_of_the_model(quantization):
    model = two_by_two()
    rng = np.random.default_rng(0)
    value = {"tokens": rng.integers(0, 10, (30, 5), np.int32), "image": images(30)}
    converted = convert(model, QuantizationConfig.model_validate(quantization), value)
    actual = run_network(converted, value)
    slots, intent = model.predict([value["tokens"], value["image"]], verbose=0)
    tolerance = 1e-5 if quantization == "none" else 0.1
    np.testing.assert_allclose(actual["slots"], slots, atol=tolerance)
    np.testing.assert_allclose(actual["intent"], intent, atol=tolerance)
    assert Runner(converted).inputs["tokens"].dtype == "int32"
