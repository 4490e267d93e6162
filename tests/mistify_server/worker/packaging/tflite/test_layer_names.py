"""Layers with kernels that stay in float32."""

import keras
import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.layer_names import are_repeated, float_kernels, layer_at

layers = keras.layers


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("precision", "kept"),
    [("int8", {"volumes": 4 * 2**3 * 2 * 5}), ("none", {"volumes": 4 * 2**3 * 2 * 5, "scores": 4 * 3 * 135})],
)
def test_layers_with_float_kernels_are_listed_with_their_size(precision: str, kept: dict[str, int]) -> None:
    """LiteRT has no int8 convolution over volumes."""
    inputs = keras.Input((4, 4, 4, 2), name="x")
    x = layers.Conv3D(5, 2, name="volumes")(inputs)
    model = keras.Model(inputs, layers.Dense(3, name="scores")(layers.Flatten()(x)))
    examples = {"x": np.random.default_rng(0).normal(size=(20, 4, 4, 4, 2)).astype(np.float32)}
    network = convert(model, QuantizationConfig.model_validate(precision), examples)
    assert float_kernels(network, {layer.name for layer in model.layers}) == kept


def test_suffixes_are_told_from_names_by_those_of_the_other_layers() -> None:
    names = ["conv", "conv_1", "add"]
    repeated = ["model_1/conv_1/convolution", "model_1/conv_1_2/convolution", "model_1/add_1/Add"]
    assert are_repeated(repeated, names)
    assert [layer_at(place, names, repeated=True) for place in repeated] == names
    own = ["model/conv/convolution", "model/conv_1/convolution", "model/add/Add"]
    assert not are_repeated(own, names)
    assert [layer_at(place, names) for place in own] == names
