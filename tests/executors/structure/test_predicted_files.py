"""Predicted file sizes and memory of layers, compared with the converted files."""

import keras
import numpy as np
import pytest

from executors.structure import analyse
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import STORED, Quantization
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.memory import memory_bytes
from tests.executors.structure.networks import randomised

layers = keras.layers


def images(*chain, size=9):
    return keras.Sequential([keras.Input((size, size, 3), name="x"), *chain])


def volumes(*chain):
    ends = (layers.GlobalAveragePooling3D(), layers.Dense(4, "softmax"))
    return keras.Sequential([keras.Input((8, 8, 8, 2), name="x"), *chain, *ends])


def separable(blocks, width):
    chain = [layers.Conv2D(width, 3, padding="same", strides=2, activation="relu")]
    for _ in range(blocks):
        chain += [layers.DepthwiseConv2D(3, padding="same", use_bias=False), layers.BatchNormalization()]
        chain += [layers.ReLU(6.0), layers.Conv2D(width, 1, use_bias=False), layers.BatchNormalization()]
    return images(*chain, layers.GlobalAveragePooling2D(), layers.Dense(4, "softmax"), size=16)


def perceptron(depth, width):
    hidden = [layers.Dense(width, "relu") for _ in range(depth)]
    return keras.Sequential([keras.Input((width,), name="x"), *hidden, layers.Dense(4, "softmax")])


NETWORKS = {
    "one layer": lambda: perceptron(0, 8),
    "two layers": lambda: perceptron(1, 16),
    "many layers": lambda: perceptron(12, 16),
    "a small image": lambda: images(layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(4, "softmax")),
    "separable": lambda: separable(3, 8),
    "many separable": lambda: separable(8, 4),
    "padding": lambda: images(
        layers.ZeroPadding2D(1), layers.Conv2D(8, 3, strides=2), layers.GlobalAveragePooling2D()
    ),
    "padding of one side": lambda: images(
        layers.ZeroPadding2D(((0, 1), (0, 1))), layers.Conv2D(8, 3, strides=2), layers.Flatten(), size=8
    ),
    "padding that stays": lambda: images(
        layers.ZeroPadding2D(2), layers.Conv2D(8, 3, strides=2), layers.GlobalAveragePooling2D()
    ),
    "nearest": lambda: images(layers.Conv2D(16, 3), layers.UpSampling2D(2), layers.Conv2D(8, 3)),
    "bilinear": lambda: images(
        layers.Conv2D(8, 3), layers.UpSampling2D(2, interpolation="bilinear"), layers.Conv2D(4, 3)
    ),
    "pooling": lambda: images(layers.Conv2D(8, 3), layers.MaxPooling2D(2), layers.Conv2D(8, 3)),
    "a sequence": lambda: keras.Sequential(
        [keras.Input((20, 4), name="x"), layers.Conv1D(8, 3), layers.GlobalMaxPooling1D(), layers.Dense(4)]
    ),
    "dense layers over a sequence": lambda: keras.Sequential(
        [keras.Input((10, 6), name="x"), *[layers.Dense(16, "relu") for _ in range(4)]]
    ),
    "transposed": lambda: images(
        *[layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu") for _ in range(2)],
        size=4,
    ),
    "a transposed signal": lambda: keras.Sequential(
        [keras.Input((8, 4), name="x"), layers.Conv1DTranspose(16, 3, strides=2), layers.Conv1D(4, 3)]
    ),
    "large input": lambda: images(
        layers.Conv2D(8, 3, strides=4, activation="relu"), layers.GlobalAveragePooling2D(), size=64
    ),
    "large output": lambda: images(
        layers.Conv2D(8, 3, strides=2, padding="same", activation="relu"),
        layers.UpSampling2D(2, interpolation="bilinear"),
        layers.Conv2D(4, 1),
        size=32,
    ),
    "activations": lambda: images(
        layers.Conv2D(8, 3, activation="gelu"),
        layers.SeparableConv2D(8, 3),
        layers.LeakyReLU(),
        layers.Conv2D(8, 3, activation="elu"),
        size=16,
    ),
    "a gated activation": lambda: images(layers.Conv2D(16, 3, strides=2, activation="silu"), size=32),
    "layer norms": lambda: images(layers.Conv2D(16, 3), layers.LayerNormalization(), layers.Conv2D(4, 1)),
    "volumes": lambda: volumes(
        layers.Conv3D(16, 3, activation="relu"), layers.MaxPooling3D(2), layers.Conv3D(24, 3, padding="same")
    ),
    "volumes with batch norms": lambda: volumes(
        *(layers.Conv3D(16, 3, use_bias=False), layers.BatchNormalization(), layers.ReLU()),
        *(layers.Conv3DTranspose(4, 2, strides=2), layers.BatchNormalization(), layers.ReLU()),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_file_size_and_memory_are_close_to_the_predictions(name):
    model = randomised(NETWORKS[name]())
    rows = {"x": np.random.default_rng(0).normal(size=(8, *model.input_shape[1:])).astype(np.float32)}
    network = analyse(model).network()
    packages = [QuantizationConfig(precision=precision) for precision in STORED]
    packages.append(QuantizationConfig(precision=Quantization.INT8, inputs="int8"))
    for package in packages:
        converted, precision = convert(model, package, rows), package.precision
        predicted = network.memory_bytes(precision, integer_inputs=package.integer_inputs)
        assert len(converted) == pytest.approx(network.size_bytes(precision), rel=0.2), package
        assert memory_bytes(converted) == pytest.approx(predicted, rel=0.1), package


def test_memory_of_sums_of_all_queries_and_keys_is_close_to_the_prediction():
    inputs = keras.Input((12, 16), name="x")
    attended = layers.AdditiveAttention()([inputs, layers.Dense(16)(inputs)])
    model = randomised(keras.Model(inputs, layers.Dense(3)(attended)))
    predicted = analyse(model).network().memory_bytes()
    assert memory_bytes(convert(model)) == pytest.approx(predicted, rel=0.1)
