"""Translation of Keras 2 layers, so that handlers need not know them."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from executors.sources.keras.keras2 import load_keras2
from executors.sources.keras.translation import translated
from mistify.errors import MistifyError

tf_keras = pytest.importorskip("tf_keras")
old = tf_keras.layers


def attention() -> Any:
    inputs = old.Input((5, 8))
    x = old.MultiHeadAttention(2, 4)(inputs, value=inputs)
    return tf_keras.Model(inputs, old.LayerNormalization()(old.Add()([x, inputs])))


def two_inputs() -> Any:
    inputs = [old.Input((4,), name="left"), old.Input((4,), name="right")]
    shared = old.Dense(3)
    return tf_keras.Model(inputs, [old.Subtract()([shared(tensor) for tensor in inputs]), shared(inputs[0])])


def chain(shape: tuple[int, ...], *body: Any) -> Any:
    return tf_keras.Sequential([old.Input(shape), *body])


MODELS = {
    "attention": attention,
    "two inputs": two_inputs,
    "recurrent": lambda: chain((5, 3), old.LSTM(4, return_sequences=True), old.GRU(3), old.Dense(2)),
    "bidirectional": lambda: chain((5, 3), old.Bidirectional(old.LSTM(4))),
    "distributed": lambda: chain((2, 6, 6, 3), old.TimeDistributed(old.Conv2D(4, 3)), old.Flatten()),
    "embedding": lambda: chain((5,), old.Embedding(10, 4), old.Conv1D(3, 2), old.GlobalMaxPooling1D()),
    "normalization": lambda: chain((6, 6, 4), old.GroupNormalization(2), old.PReLU(), old.ELU(0.5)),
    "statistics": lambda: chain((4,), old.Normalization(), old.Dense(2)),
    "leaky": lambda: chain((4,), old.Dense(3), old.LeakyReLU(0.4)),
    "images": lambda: chain((8, 8, 3), old.Resizing(6, 6), old.RandomFlip(), old.Rescaling(0.1, 0.5)),
    "volumes": lambda: chain((6, 6, 6, 2), old.Conv3D(3, 2), old.MaxPooling3D(), old.Flatten()),
}


HARD = "hard_sigmoid"

#: Keras 2 has another hard sigmoid than Keras 3.
HARD_SIGMOIDS = {
    "dense": lambda: chain((4,), old.Dense(3, activation=HARD), old.Dense(2)),
    "convolution": lambda: chain((6, 6, 3), old.Conv2D(4, 3, activation=HARD)),
    "depthwise": lambda: chain((6, 6, 3), old.DepthwiseConv2D(3, depth_multiplier=2, activation=HARD)),
    "separable": lambda: chain((6, 6, 3), old.SeparableConv2D(4, 3, activation=HARD)),
    "activation": lambda: chain((6, 6, 3), old.Conv2D(4, 3), old.Activation(HARD)),
    "distributed": lambda: chain((5, 4), old.TimeDistributed(old.Dense(3, activation=HARD))),
    "gates": lambda: chain((5, 4), old.LSTM(3, return_sequences=True, recurrent_activation=HARD)),
    "both directions": lambda: chain((5, 4), old.Bidirectional(old.GRU(3, recurrent_activation=HARD))),
    "states": lambda: chain((5, 4), old.GRU(3, activation=HARD, reset_after=False)),
    "simple": lambda: chain((5, 4), old.SimpleRNN(3, activation=HARD)),
    "images over time": lambda: chain((3, 6, 6, 2), old.ConvLSTM2D(3, 3)),
}


def randomised(model: Any) -> Any:
    rng = np.random.default_rng(0)
    for variable in model.variables:
        if variable.dtype.is_floating:
            variable.assign(rng.uniform(0.1, 1.0, variable.shape))
    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_computes_the_same(tmp_path: Path, name: str) -> None:
    randomised(MODELS[name]()).save(tmp_path / "old.h5")
    model = tf_keras.models.load_model(tmp_path / "old.h5", compile=False)
    new = load_keras2(tmp_path / "old.h5")
    rng = np.random.default_rng(1)
    inputs = [rng.uniform(0, 3, (2, *tensor.shape[1:])).astype(np.float32) for tensor in model.inputs]
    arrays = inputs if len(inputs) > 1 else inputs[0]
    expected, outputs = (keras.tree.flatten(network(arrays, training=False)) for network in (model, new))
    for before, after in zip(expected, outputs, strict=True):
        np.testing.assert_allclose(np.asarray(after), np.asarray(before), atol=1e-4)


@pytest.mark.parametrize("name", HARD_SIGMOIDS)
def test_a_hard_sigmoid_keeps_its_slope(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    model = HARD_SIGMOIDS[name]()
    for variable in model.variables:
        variable.assign(rng.normal(0, 0.4, variable.shape))
    model.save(tmp_path / "old.h5")
    x = rng.normal(size=(3, *model.input_shape[1:])).astype(np.float32)
    np.testing.assert_allclose(load_keras2(tmp_path / "old.h5")(x), model(x), atol=1e-5)


def test_outputs_are_compared_relative_to_their_magnitude(tmp_path: Path) -> None:
    """A price of many thousands never matches to four decimal places."""
    model = randomised(chain((8,), old.LayerNormalization(), old.Dense(1), old.Rescaling(1e5)))
    assert translated(tmp_path, model).output_shape == (None, 1)


def test_a_translation_with_different_outputs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("executors.sources.keras.translation._RENAMED", {})
    with pytest.raises(MistifyError, match="outputs that differ by"):
        translated(tmp_path, randomised(chain((4,), old.Rescaling(-1.0), old.LeakyReLU(0.8))))
