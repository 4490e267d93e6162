"""Operations that would overflow in LiteRT on very large inputs, compared with Keras."""

import keras
import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.litert import Interpreter, OpResolverType
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import SIGNATURE, Runner
from tests.mistify_server.worker.packaging.networks import operators

layers = keras.layers

#: Above 88, exp is infinite in float32. At 1e30, LiteRT's own LOGISTIC is NaN on processors with AVX-512.
VALUES = np.array([0, 1e-3, 0.5, 3, 20, 87, 89, 142.6, 1e4, 1e20], np.float32)
#: The last row is zero, and so has no direction.
ROWS = np.stack([VALUES, -VALUES, VALUES[::-1], 0 * VALUES])

OPERATIONS = {
    "softplus": layers.Activation("softplus"),
    "log_sigmoid": layers.Activation("log_sigmoid"),
    "mish": layers.Activation("mish"),
    "log_softmax": layers.Activation("log_softmax"),
    "unit_normalization": layers.UnitNormalization(),
    "logsumexp": lambda x: keras.ops.logsumexp(x, axis=-1),
    "logaddexp": lambda x: keras.ops.logaddexp(x, -x),
}


@pytest.fixture(scope="module")
def model():
    inputs = keras.Input((len(VALUES),), name="x")
    outputs = {f"{name}_of_x": make(inputs) for name, make in OPERATIONS.items()}
    return keras.Model(inputs, [layers.Identity(name=name)(output) for name, output in outputs.items()])


@pytest.fixture(scope="module")
def converted(model):
    return convert(model)


@pytest.fixture(scope="module")
def expected(model):
    return {f"{name}_of_x": np.asarray(output) for name, output in zip(OPERATIONS, model(ROWS), strict=True)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_outputs_agree_with_keras_on_extreme_inputs(converted, expected, name):
    actual = Runner(converted)({"x": ROWS})[f"{name}_of_x"]
    np.testing.assert_allclose(actual, expected[f"{name}_of_x"], rtol=1e-5, atol=1e-6)


def test_outputs_of_the_own_kernels_of_litert_agree_with_keras(converted, expected):
    """LiteRT's own kernels are used for calibration, and on machines without XNNPACK."""
    interpreter = Interpreter(
        model_content=converted,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    actual = interpreter.get_signature_runner(SIGNATURE)(x=ROWS)
    for name, output in expected.items():
        np.testing.assert_allclose(actual[name], output, rtol=1e-5, atol=1e-6)


def test_conversion_is_deterministic(model, converted):
    assert convert(model) == converted


def test_the_preceding_layer_is_computed_once():
    inputs = keras.Input((4,), name="x")
    converted = convert(keras.Model(inputs, layers.Dense(3, activation="softplus", name="y")(inputs)))
    assert [name for name, _ in operators(converted)].count("FULLY_CONNECTED") == 1


def test_int8_networks_do_not_overflow():
    inputs = keras.Input((4,), name="x")
    model = keras.Model(inputs, layers.Activation("softplus", name="y")(inputs))
    rows = np.random.default_rng(0).uniform(-300, 300, (50, 4)).astype(np.float32)
    converted = convert(model, QuantizationConfig.model_validate("int8"), {"x": rows})
    assert {kind for _, kind in operators(converted)[:-1]} == {"INT8"}
    step = 600 / 255
    assert np.abs(Runner(converted)({"x": rows})["y"] - np.asarray(model(rows))).max() < 2 * step


def test_a_norm_that_cannot_be_zero_is_not_changed():
    inputs = keras.Input((4,), name="x")
    converted = convert(keras.Model(inputs, layers.LayerNormalization()(inputs)))
    assert "MAXIMUM" not in {name for name, _ in operators(converted)}
