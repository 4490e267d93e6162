"""A network in stages with heads, in LiteRT at every precision."""

from functools import cache

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from executors.exits.trunk import Trunk, pooled
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.exits import FEATURES, stage_signature
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.exits import convert_exits
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.data.make_exits import network

layers = keras.layers
IMAGES = np.random.default_rng(0).uniform(0, 16, (64, 8, 8, 1)).astype(np.float32)


def head(position):
    """Return a head with random weights."""
    inputs = keras.Input(position.shape)
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.Flatten()(pooled(inputs))))


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture(scope="module")
def parts(model):
    """Return stages and heads."""
    trunk = Trunk(model)
    keras.utils.set_random_seed(3)
    return trunk.stages(trunk.positions), [head(position) for position in trunk.positions]


@pytest.fixture(scope="module")
def converted(parts):
    """Return the file at a precision; each is converted only once."""

    @cache
    def convert_to(precision):
        quantization = QuantizationConfig.model_validate(precision)
        return convert_exits(*parts, "digit", quantization, {"image": IMAGES})

    return convert_to


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("none", 1e-5), ("float16", 5e-3), ("dynamic", 0.05), ("int8", 0.1)]
)
@pytest.mark.parametrize("count", [1, 5])
def test_stages_answer_as_their_heads_do(parts, converted, precision, tolerance, count):
    stages, heads = parts
    tensors, features = {"image": IMAGES[:count]}, IMAGES[:count]
    for number, (stage, own) in enumerate(zip(stages, [*heads, None], strict=True)):
        outputs = Runner(converted(precision), stage_signature(number))(tensors)
        features = stage(features, training=False)
        expected = features if own is None else own(features)
        np.testing.assert_allclose(outputs["digit"], expected, atol=tolerance)
        assert set(outputs) == ({"digit"} if own is None else {"digit", FEATURES})
        tensors = {FEATURES: outputs[FEATURES]} if own is not None else {}


@pytest.mark.parametrize("precision", ["none", "int8"])
def test_every_weight_is_stored_once(model, parts, converted, precision):
    """A second copy of the network's weights would be 18,000 numbers more."""
    quantization = QuantizationConfig.model_validate(precision)
    whole = len(convert(model, quantization, {"image": IMAGES}))
    heads = sum(weight.size for own in parts[1] for weight in own.get_weights())
    size = 4 if precision == "none" else 1
    graphs = 8_000 * len(parts[0])  # names, scales and operators
    assert len(converted(precision)) < whole + size * heads + graphs
    assert size * sum(weight.size for weight in model.get_weights()) > 0.5 * graphs


def test_integers_compute_the_int8_stages(converted):
    interpreter = Interpreter(model_content=converted("int8"))
    types = [entry["dtype"] for entry in interpreter.get_tensor_details() if len(entry["shape"]) == 4]
    assert types.count(np.int8) > types.count(np.float32)
