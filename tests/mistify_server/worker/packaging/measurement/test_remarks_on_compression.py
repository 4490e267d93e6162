"""Packages of sparse and clustered networks: file contents and remarks."""

import gzip

import numpy as np
import pytest
from ai_edge_litert.tools import flatbuffer_utils

from executors.readers.loading import load_dataset
from executors.structure.signature import signature_of
from executors.training.evaluation import Evaluation
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.data.metric import Metric
from mistify.config.package.compression import CompressionConfig
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.measurement.remarks import compression_losses
from tests.mistify_server.worker.packaging.networks import network, package_task, packaged
from tests.mistify_server.worker.packaging.networks import training_setup as training_setup_of

HALF = CompressionConfig(sparsity=0.5)
SIXTEEN = CompressionConfig(clusters=16)
STORED = {"FLOAT32": np.float32, "FLOAT16": np.float16, "INT8": np.int8}
SLOW = [Quantization.FLOAT16, Quantization.DYNAMIC, Quantization.INT8]
PRECISIONS = [Quantization.NONE, *(pytest.param(precision, marks=pytest.mark.slow) for precision in SLOW)]


def task(compression, precision=Quantization.NONE, accuracy=0.0):
    return package_task(
        accuracy, compression=compression, quantization=QuantizationConfig(precision=precision)
    )


def kernels_in(content):
    """Return the weights read by convolutions and matrix products, found from the operators."""
    model = flatbuffer_utils.read_model_from_bytearray(content)
    graph = model.subgraphs[0]
    names = {
        id(operator): flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex)
        for operator in graph.operators
    }
    widened = {
        operator.outputs[0]: operator.inputs[0]
        for operator in graph.operators
        if names[id(operator)] == "DEQUANTIZE"
    }
    actual = []
    for operator in graph.operators:
        if names[id(operator)] in ("CONV_2D", "FULLY_CONNECTED"):
            tensor = graph.tensors[widened.get(operator.inputs[1], operator.inputs[1])]
            stored = STORED[flatbuffer_utils.type_to_name(tensor.type)]
            actual.append(np.frombuffer(bytes(model.buffers[tensor.buffer].data), stored))
    return actual


@pytest.fixture(scope="module")
def digits(digits_resnet):
    """Return a network trained on the digits, and its training data."""
    signature = signature_of(digits_resnet)
    train, test = (load_dataset(f"builtin:digits-{part}", signature) for part in ("train", "test"))
    predicted = Evaluation(digits_resnet).outputs(train.inputs)
    return (
        digits_resnet,
        TrainingSetup(train, test, predicted, TrainingParams()),
        Evaluation(digits_resnet).score(test, Metric.ACCURACY),
    )


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_half_of_the_weights_are_zero_in_the_file_at_every_precision(digits, precision):
    model, training_setup, accuracy = digits
    package = packaged(model, task(HALF, precision, accuracy), training_setup, training_steps=150)
    content, manifest = package.files["serve.tflite"], package.manifest
    kernels = kernels_in(content)
    assert len(kernels) == 11
    zeros = sum((kernel == 0).sum() for kernel in kernels) / sum(kernel.size for kernel in kernels)
    assert 0.5 <= zeros < 0.52
    assert all((kernel == 0).mean() >= 0.5 - 1 / kernel.size for kernel in kernels)
    assert manifest.achieved["zero_share"] == pytest.approx(zeros)
    assert manifest.compression == HALF
    assert manifest.accuracy >= accuracy - 0.02
    assert manifest.achieved["gzip_bytes"] == len(gzip.compress(content, mtime=0))


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS[:2])
def test_kernels_have_sixteen_values_in_the_file(digits, precision):
    model, training_setup, accuracy = digits
    package = packaged(model, task(SIXTEEN, precision, accuracy), training_setup, training_steps=50)
    kernels = kernels_in(package.files["serve.tflite"])
    different = max(len(set(kernel.tolist())) for kernel in kernels)
    assert different <= 16
    assert package.manifest.achieved["kernel_values"] == different
    assert "a kernel has" not in package.manifest.note
    assert package.manifest.accuracy >= accuracy - 0.02


@pytest.mark.slow
def test_compressed_networks_have_smaller_gzip_sizes(digits):
    model, training_setup, _ = digits
    plain, sparse, clustered = (
        packaged(model, task(asked), training_setup).files["serve.tflite"] for asked in (None, HALF, SIXTEEN)
    )
    zipped = [len(gzip.compress(content, mtime=0)) for content in (plain, sparse, clustered)]
    assert zipped[1] < 0.7 * zipped[0]
    assert zipped[2] < 0.3 * zipped[0]


@pytest.mark.slow
def test_distinct_values_are_reported_if_each_channel_has_its_own_scale():
    """Int8 gives each channel of a convolution its own scale, and thereby its own values."""
    model = network(width=16)
    setup = training_setup_of(model)
    package = packaged(model, task(CompressionConfig(clusters=4), Quantization.INT8), setup)
    values = package.manifest.achieved["kernel_values"]
    assert values > 4
    assert f"with 4 clusters: a kernel has {values:.0f} values" in package.manifest.note


def test_a_package_without_compression_has_no_remark_on_it():
    model = network()
    manifest = packaged(model, task(None), training_setup_of(model)).manifest
    assert manifest.compression is None
    assert not {"zero_share", "kernel_values", "gzip_bytes"} & manifest.achieved.keys()


@pytest.mark.slow
def test_the_loss_of_a_precision_is_relative_to_the_compressed_network():
    """A network with nearly all weights zero only guesses, which is not a loss caused by float16."""
    model = network()
    setup = training_setup_of(model, train=200, validation=200)
    asked = task(CompressionConfig(sparsity=0.95), Quantization.FLOAT16, accuracy=0.8)
    note = packaged(model, asked, setup).manifest.note
    assert "with 95% zeros: " in note
    assert "against 80.0% before" in note
    assert note.count("accuracy") == 1


@pytest.mark.parametrize(
    ("asked", "actual", "accuracy", "reported"),
    [
        (HALF, {"zero_share": 0.5}, 0.895, ""),
        (HALF, {"zero_share": 0.495}, 0.9, ""),
        (HALF, {"zero_share": 0.3}, 0.9, "with 50% zeros: 30% of the weights are zero"),
        (SIXTEEN, {"kernel_values": 16.0}, 0.9, ""),
        (SIXTEEN, {"kernel_values": 17.0}, 0.9, "with 16 clusters: a kernel has 17 values"),
        (HALF, {"zero_share": 0.5}, 0.88, "with 50% zeros: accuracy 88.0% against 90.0% before"),
    ],
)
def test_insufficient_compression_is_reported(asked, actual, accuracy, reported):
    assert compression_losses(asked, actual, accuracy, 0.9, Metric.ACCURACY).startswith(reported)
    assert bool(compression_losses(asked, actual, accuracy, 0.9, Metric.ACCURACY)) == bool(reported)


def test_a_package_without_training_needs_no_teacher():
    assert not task(None).spec.needs_training
    assert task(HALF).spec.needs_training
    assert task(None, Quantization.INT8_QAT).spec.needs_training
