"""Recurrent layers compute in packages what those of Keras do, with fewer operators."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from executors.structure.folding import fold_batch_norm
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.flatbuffer import operators
from tests.executors.structure.networks import randomised

layers = keras.layers

RECURRENT: dict[str, Callable[[], Any]] = {
    "lstm": lambda: layers.LSTM(5, unroll=True),
    "all steps of an lstm": lambda: layers.LSTM(5, return_sequences=True, unroll=True),
    "lstm without bias": lambda: layers.LSTM(5, use_bias=False, unroll=True),
    "lstm backwards": lambda: layers.LSTM(5, return_sequences=True, go_backwards=True, unroll=True),
    "gru": lambda: layers.GRU(5, return_sequences=True, unroll=True),
    "gru without bias": lambda: layers.GRU(5, use_bias=False, unroll=True),
    "gru, reset before": lambda: layers.GRU(5, reset_after=False, unroll=True),
    "simple rnn": lambda: layers.SimpleRNN(5, activation="relu", return_sequences=True, unroll=True),
    "both directions": lambda: layers.Bidirectional(layers.LSTM(5, return_sequences=True, unroll=True)),
    "sum of both": lambda: layers.Bidirectional(layers.GRU(5, unroll=True), merge_mode="sum"),
}


def network(layer: Any) -> keras.Model:
    x = keras.Input((6, 4), name="x")
    return randomised(keras.Model(x, layers.Dense(3, name="y")(layers.Flatten()(layer(x)))), 0)


def kinds(model: keras.Model) -> Counter[str]:
    return Counter(operator.name for operator in operators(convert(model)))


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_layer_computes_the_same(name: str) -> None:
    model = network(RECURRENT[name]())
    inputs = np.random.default_rng(0).normal(size=(7, 6, 4)).astype(np.float32)
    np.testing.assert_allclose(fold_batch_norm(model)(inputs), model(inputs), atol=1e-5)


def test_a_mask_still_ends_a_sequence() -> None:
    x = keras.Input((6, 4), name="x")
    made = layers.GRU(5, unroll=True)(layers.Masking()(x))
    model = randomised(keras.Model(x, layers.Dense(3)(made)), 0)
    inputs = np.random.default_rng(0).normal(size=(7, 6, 4)).astype(np.float32)
    inputs[:, 3:] = 0
    np.testing.assert_allclose(fold_batch_norm(model)(inputs), model(inputs), atol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "gru", "both directions"])
def test_inputs_of_all_steps_are_multiplied_at_once(name: str) -> None:
    made = kinds(network(RECURRENT[name]()))
    directions = 2 if name == "both directions" else 1
    assert made["FULLY_CONNECTED"] == directions * (1 + 6) + 1  # the inputs, each step, and the scores
    assert made["TRANSPOSE"] == 0
