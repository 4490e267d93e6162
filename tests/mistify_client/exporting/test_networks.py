"""Whole networks are exported as they would be written for ONNX."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import keras
from keras import layers, ops

from executors.sources.keras.flat import flatten
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.package.manifest import SIGNATURE
from mistify_client.exporting.conversion import converted
from mistify_client.exporting.interface import Port
from mistify_server.worker.packaging.conversion.converter import convert
from tests.executors.structure.networks import randomised
from tests.mistify_client.exporting.compared import channels_first, difference, nodes


def residual() -> keras.Model:
    """Return convolutions with all paddings, squeeze and excitation, and a dense head."""
    image = keras.Input((12, 12, 3), name="image")
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(layers.Rescaling(0.5, 0.1)(image))
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    y = layers.DepthwiseConv2D(3, strides=2, padding="same")(x)
    y = layers.Conv2D(8, 1, activation="hard_silu")(y)
    squeezed = layers.GlobalAveragePooling2D(keepdims=True)(y)
    squeezed = layers.Conv2D(8, 1, activation="sigmoid")(layers.Conv2D(4, 1, activation="relu")(squeezed))
    y = layers.Multiply()([y, squeezed])
    x = layers.Conv2D(8, 3, strides=2)(layers.ZeroPadding2D(((1, 0), (1, 0)))(x))
    x = layers.Add()([x, layers.Conv2D(8, 3, dilation_rate=2, padding="same", groups=2)(y)])
    x = layers.MaxPooling2D(3, strides=2, padding="same")(layers.AveragePooling2D(2, 1, "same")(x))
    x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
    return keras.Model(image, layers.Dense(5, "softmax", name="scores")(x))


def segmentation() -> keras.Model:
    """Return a network whose output is an image, with both ways back to its size."""
    image = keras.Input((16, 16, 3), name="image")
    fine = layers.Conv2D(6, 3, padding="same", activation="relu")(image)
    coarse = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(fine)
    up = layers.Conv2DTranspose(6, 3, strides=2, padding="same")(coarse)
    other = layers.UpSampling2D(2, interpolation="bilinear")(layers.PReLU(shared_axes=[1, 2])(coarse))
    x = layers.Concatenate()([fine, up, layers.UpSampling2D(2)(coarse), other])
    return keras.Model(image, layers.Conv2D(2, 1, activation="softmax", name="mask")(x))


def transformer() -> keras.Model:
    """Return a vision transformer of two blocks."""
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Reshape((16, 8))(layers.Conv2D(8, 4, strides=4)(image))
    for _ in range(2):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(y, y)])
        y = layers.Dense(16, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
        x = layers.Add()([x, layers.Dense(8)(y)])
    return keras.Model(image, layers.Dense(3, name="scores")(layers.GlobalAveragePooling1D()(x)))


def shuffled() -> keras.Model:
    """Return grouped convolutions, between which channels are shuffled."""
    image = keras.Input((8, 8, 4), name="image")
    x = layers.Conv2D(8, 3, padding="same", groups=2, activation="relu")(image)
    x = layers.Permute((1, 2, 4, 3))(layers.Reshape((8, 8, 2, 4))(x))
    x = layers.Conv2D(6, 3, groups=2)(layers.Reshape((8, 8, 8))(x))
    return keras.Model(image, layers.Dense(3, name="scores")(layers.GlobalMaxPooling2D()(x)))


def convnext() -> keras.Model:
    """Return blocks that normalize channels, and have dense layers for all positions of an image."""
    image = keras.Input((16, 16, 3), name="image")
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Conv2D(8, 4, strides=4)(image))
    y = layers.LayerNormalization(epsilon=1e-6)(layers.DepthwiseConv2D(7, padding="same")(x))
    x = layers.Add()([x, layers.Dense(8)(layers.Dense(16, activation="gelu")(y))])
    return keras.Model(image, layers.Dense(3, name="scores")(layers.GlobalAveragePooling2D()(x)))


def text() -> keras.Model:
    """Return convolutions over words."""
    words = keras.Input((12,), dtype="int32", name="words")
    x = layers.Conv1D(8, 3, padding="same", activation="relu")(layers.Embedding(5, 6)(words))
    x = layers.Conv1D(8, 3, dilation_rate=2)(layers.MaxPooling1D(2)(x))
    return keras.Model(words, layers.Dense(4, "softmax", name="topic")(layers.GlobalMaxPooling1D()(x)))


def recurrent() -> keras.Model:
    """Return recurrent layers, which are unrolled in packages."""
    signal = keras.Input((5, 4), name="signal")
    x = layers.Bidirectional(layers.LSTM(3))(layers.GRU(6, return_sequences=True)(signal))
    return keras.Model(signal, layers.Dense(2, name="event")(x))


NETWORKS = (residual, segmentation, transformer, shuffled, convnext, text, recurrent)


def network_of(make: Callable[[], keras.Model], precision: Quantization = Quantization.NONE) -> bytes:
    keras.utils.set_random_seed(0)
    model = flatten("model", randomised(make()))
    return convert(model, QuantizationConfig(precision=precision))


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_outputs_are_those_of_the_package_in_both_layouts(make: Callable[[], keras.Model]) -> None:
    network = network_of(make)
    assert difference(network) < 1e-5
    assert difference(network, channels_first(network)) < 1e-5


def test_weights_in_float16_are_written_as_float32() -> None:
    network = network_of(residual, Quantization.FLOAT16)
    assert difference(network) < 1e-5
    assert not nodes(network)["Cast"]


@pytest.mark.parametrize("make", [residual, segmentation], ids=lambda make: make.__name__)
def test_nothing_is_transposed_between_convolutions(make: Callable[[], keras.Model]) -> None:
    network = network_of(make)
    image_out = make is segmentation
    assert nodes(network, channels_first(network))["Transpose"] == 0
    assert nodes(network)["Transpose"] == 1 + image_out


@pytest.mark.parametrize("precision", [Quantization.NONE, Quantization.FLOAT16])
@pytest.mark.parametrize(("make", "norms"), [(convnext, 2), (transformer, 4)])
def test_layer_norms_are_single_nodes(
    make: Callable[[], keras.Model], norms: int, precision: Quantization
) -> None:
    network = network_of(make, precision)
    made = nodes(network, channels_first(network))
    assert (made["LayerNormalization"], made["Sqrt"], made["Sub"]) == (norms, 0, 0)
    assert difference(network, channels_first(network)) < 1e-5


def normalized(norm: Callable[[Any], Any]) -> keras.Model:
    """Return a dense layer, a normalization, and another dense layer."""
    signal = keras.Input((5, 6), name="signal")
    return keras.Model(signal, layers.Dense(3, name="out")(norm(layers.Dense(8)(signal))))


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [True, False])
def test_layer_norms_without_weights_are_single_nodes(center: bool, scale: bool) -> None:
    norm = layers.LayerNormalization(center=center, scale=scale, epsilon=0.01)
    network = network_of(lambda: normalized(norm))
    assert nodes(network)["LayerNormalization"] == 1
    assert difference(network) < 1e-5


@pytest.mark.parametrize(
    "norm",
    [
        lambda x: layers.LayerNormalization()(x) * ops.mean(x, axis=-1, keepdims=True),
        lambda x: (
            (x - ops.mean(x, axis=1, keepdims=True)) * ops.rsqrt(ops.var(x, axis=1, keepdims=True) + 0.1)
        ),
        lambda x: (
            (x - ops.max(x, axis=-1, keepdims=True)) * ops.rsqrt(ops.var(x, axis=-1, keepdims=True) + 0.1)
        ),
        layers.RMSNormalization(),
        layers.GroupNormalization(2),
    ],
    ids=["mean read", "other axis", "maximum", "without mean", "groups"],
)
def test_other_normalizations_are_written_as_they_are(norm: Callable[[Any], Any]) -> None:
    network = network_of(lambda: normalized(norm))
    assert nodes(network)["LayerNormalization"] == 0
    assert difference(network) < 1e-5


def test_upsampling_is_a_single_node() -> None:
    network = network_of(segmentation)
    made = nodes(network, channels_first(network))
    assert (made["Resize"], made["Tile"], made["Reshape"]) == (2, 0, 0)


def test_zeros_around_images_are_padded_by_convolutions_and_dense_layers_keep_flattened_orders() -> None:
    network = network_of(residual)
    made = nodes(network, channels_first(network))
    assert (made["Pad"], made["Gather"], made["Gemm"]) == (0, 0, 2)


def test_the_batch_of_an_input_may_be_another_axis_than_the_first() -> None:
    network = network_of(recurrent)
    assert difference(network, {"signal": Port("steps", (1, 0, 2))}) < 1e-5


def test_nodes_and_weights_are_named_after_layers() -> None:
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(4, 3, activation="relu", name="stem.conv")(image)
    scores = layers.Dense(3, name="scores")(layers.Flatten()(x))
    network = convert(randomised(keras.Model(image, scores)))
    graph = converted(network, SIGNATURE, {}, {}).graph
    names = [node.name for node in graph.node if node.op_type in ("Conv", "Relu", "Gemm")]
    assert names == ["stem.conv/Conv", "stem.conv/Relu", "scores/Gemm"]
    weights = {weight.name for weight in graph.initializer if "constant" not in weight.name}
    assert weights == {"stem.conv.weight", "stem.conv.bias", "scores.weight", "scores.bias"}


def test_a_shuffle_of_channels_is_a_single_transposition() -> None:
    network = network_of(shuffled)
    assert nodes(network, channels_first(network))["Transpose"] == 1


@pytest.mark.parametrize(("activation", "pads"), [("relu", 0), ("tanh", 1)])
def test_zeros_around_a_maximum_are_its_padding_only_if_nothing_is_negative(
    activation: str, pads: int
) -> None:
    def padded() -> keras.Model:
        image = keras.Input((8, 8, 3), name="image")
        x = layers.Conv2D(4, 3, strides=2, padding="same", activation=activation)(image)
        x = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(x))
        return keras.Model(image, layers.Dense(3, name="scores")(layers.GlobalAveragePooling2D()(x)))

    network = network_of(padded)
    made = nodes(network, channels_first(network))
    assert (made["Pad"], made["GlobalAveragePool"], made["Gemm"]) == (pads, 1, 1)
    assert difference(network) < 1e-5


def test_only_attention_transposes_tokens() -> None:
    network = network_of(transformer)
    per_block = 4  # queries, keys, values and the result
    assert nodes(network, channels_first(network))["Transpose"] <= 2 * per_block + 2
