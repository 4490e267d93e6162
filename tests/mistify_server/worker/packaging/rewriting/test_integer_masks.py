"""Attention with masks in int8, compared with Keras."""

import keras
import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.executors.structure.networks import randomised

layers, ops = keras.layers, keras.ops
INT8 = QuantizationConfig.model_validate("int8")
STEPS = 6
BAND = np.abs(np.subtract.outer(range(STEPS), range(STEPS))) < 2


def by_products(x, choose):
    """Return attention of each position of [n, steps, channels] to others, with masked scores."""
    scores = ops.matmul(x, ops.transpose(x, (0, 2, 1)))
    return ops.matmul(layers.Softmax()(choose(scores)), x)


MASKED = {
    "causal": lambda x: layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True),
    "band": lambda x: layers.MultiHeadAttention(2, 4)(x, x, attention_mask=BAND[None]),
    "shared keys": lambda x: layers.GroupQueryAttention(4, 4, 2)(x, x, use_causal_mask=True),
    "computed": lambda x: layers.MultiHeadAttention(2, 4)(x, x, attention_mask=x[:, None, :, 0] > -0.5),
    "products": lambda x: by_products(x, lambda scores: ops.where(BAND, scores, -1e9)),
    "opposite": lambda x: by_products(x, lambda scores: ops.where(~BAND, -np.inf, scores)),
}


def rows(count, seed=0):
    return {"x": np.random.default_rng(seed).normal(size=(count, STEPS, 8)).astype(np.float32)}


@pytest.mark.parametrize("name", MASKED)
def test_masked_scores_keep_their_resolution(name):
    inputs = keras.Input((STEPS, 8), name="x")
    x = layers.Dense(8, name="d")(inputs)
    model = randomised(keras.Model(inputs, layers.Identity(name="y")(MASKED[name](x))))
    expected = np.asarray(model(rows(40, 1)["x"], training=False))
    actual = Runner(convert(model, INT8, rows(200)))(rows(40, 1))["y"]
    assert np.abs(actual - expected).mean() < 0.01 * np.ptp(expected)


def test_many_excluded_positions_have_no_share_together():
    """The first position attends to itself only, whatever the 511 others have."""
    steps = 512
    causal = np.tril(np.ones((steps, steps), bool))
    inputs = keras.Input((steps, 4), name="x")
    x = layers.Dense(4, kernel_initializer="identity")(inputs)
    y = by_products(x, lambda scores: ops.where(causal, 0.01 * scores, -1e9))
    model = keras.Model(inputs, layers.Identity(name="y")(y))
    data = np.random.default_rng(0).normal(2, 0.5, (40, steps, 4)).astype(np.float32)
    actual = Runner(convert(model, INT8, {"x": data[:30]}))({"x": data[30:]})["y"]
    np.testing.assert_allclose(actual[:, 0], data[30:, 0], atol=0.1)


def test_low_scores_with_other_readers_stay():
    inputs = keras.Input((STEPS, STEPS), name="x")
    scores = ops.where(BAND, layers.Dense(STEPS, kernel_initializer="identity")(inputs), -2e4)
    outputs = [layers.Identity(name="y")(layers.Softmax()(scores)), layers.Identity(name="s")(scores)]
    made = Runner(convert(keras.Model(inputs, outputs), INT8, {"x": rows(50)["x"][..., :STEPS]}))
    assert made({"x": rows(5)["x"][..., :STEPS]})["s"].min() < -1e4
