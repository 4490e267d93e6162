"""Predicted LiteRT operators of layers, compared with the converted network."""

from collections import Counter

import keras
import numpy as np
import pytest

from executors.structure import analyse
from mistify.costs.operators import Operation, OperatorKind
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.costs import network_cost

layers = keras.layers


def image_network() -> keras.Model:
    inputs = keras.Input((16, 16, 3), name="x")
    x = layers.Conv2D(6, 3, padding="same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    y = layers.Conv2D(6, 5, padding="same", groups=2, activation="relu6")(x)
    x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.DepthwiseConv2D(3, 2, padding="same", activation="sigmoid")(x)
    x = layers.SeparableConv2D(8, 3, padding="same")(x)
    x = layers.Concatenate()([x, layers.Conv2D(4, 1)(x)])
    x = layers.AveragePooling2D(2)(layers.MaxPooling2D(2, padding="same")(x))
    return keras.Model(inputs, layers.Dense(5, "softmax", name="y")(layers.Flatten()(x)))


def sequence_network() -> keras.Model:
    inputs = keras.Input((20, 4), name="x")
    x = layers.Conv1D(6, 5, 2, padding="same", activation="relu")(inputs)
    x = layers.MaxPooling1D(2)(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(3, name="y")(layers.Dense(7, "tanh")(x)))


def attention_network() -> keras.Model:
    inputs = keras.Input((6, 8), name="x")
    x = layers.MultiHeadAttention(2, 4, value_dim=3)(inputs, inputs)
    return keras.Model(inputs, layers.GlobalAveragePooling1D(name="y")(x))


def counted(operations: list[Operation], *without: OperatorKind) -> Counter[Operation]:
    return Counter(operation for operation in operations if operation.kind not in without)


@pytest.mark.sampled
@pytest.mark.parametrize("make", [image_network, sequence_network])
def test_predicted_operators_match_the_converted_network(make) -> None:
    keras.utils.set_random_seed(0)
    model = make()
    expected = list(network_cost(convert(model)).operations)
    actual = list(analyse(model).network().operations)
    assert counted(actual) == counted(expected)


def test_convolutions_over_volumes_have_the_channels_of_their_layers() -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 8, 8, 3), name="x")
    x = layers.Conv3D(5, (3, 2, 1), padding="same", activation="relu")(inputs)
    x = layers.Conv3D(6, 3, 2, padding="same", use_bias=False)(x)
    model = keras.Model(inputs, layers.Dense(2, name="y")(layers.Flatten()(x)))
    others = tuple(set(OperatorKind) - {OperatorKind.CONVOLUTION})
    expected = [
        Operation(OperatorKind.CONVOLUTION, 6 * 8 * 8, 3, 5, 3 * 2 * 1),
        Operation(OperatorKind.CONVOLUTION, 3 * 4 * 4, 5, 6, 3 * 3 * 3, 8),
    ]
    for network in (network_cost(convert(model)), analyse(model).network()):
        assert counted(list(network.operations), *others) == Counter(expected)


def plain_attention_network() -> keras.Model:
    inputs = keras.Input((6, 8), name="x")
    x = layers.EinsumDense("abc,cde->abde", (6, 2, 5), bias_axes="de")(inputs)
    x = layers.EinsumDense("abde,dec->abc", (6, 7), activation="tanh")(x)
    x = layers.Attention(use_scale=True)([x, layers.EinsumDense("abc,bd->adc", (4, 7))(x)])
    x = layers.AdditiveAttention()([x, layers.EinsumDense("abc,bcd->abd", (6, 7))(x)])
    return keras.Model(inputs, layers.GlobalAveragePooling1D(name="y")(x))


@pytest.mark.parametrize("make", [attention_network, plain_attention_network])
def test_attention_is_made_of_products(make) -> None:
    """The operators between the products depend on the converter."""
    keras.utils.set_random_seed(0)
    model = make()
    between = tuple(set(OperatorKind) - {OperatorKind.DENSE, OperatorKind.PRODUCT, OperatorKind.SOFTMAX})
    expected = counted(list(network_cost(convert(model)).operations), *between)
    # One product with a left-hand side for all heads, or one product per head.
    assert counted(list(analyse(model).network().operations), *between) == expected


def test_narrower_layers_have_fewer_multiply_adds() -> None:
    structure = analyse(image_network())
    narrow = structure.network(dict.fromkeys(structure.groups, 1))
    before = {layer.name: layer.operations for layer in structure.network().layers}
    for layer in narrow.layers:
        for now, then in zip(layer.operations, before[layer.name], strict=True):
            assert (now.kind, now.positions, now.kernel) == (then.kind, then.positions, then.kernel)
            assert now.c_in <= then.c_in
            assert now.c_out <= then.c_out
    assert np.sum([operation.written for operation in narrow.operations]) < np.sum(
        [operation.written for operation in structure.network().operations]
    )
