"""Quantization-aware training on networks with few layers."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from executors.compression import quantization_aware
from executors.compression.kernels import kernels
from executors.compression.quantization import RoundedKernel, Rounding, rounding
from executors.data import Dataset
from executors.structure import fold_batch_norm
from executors.structure.reading.reader import read_graph
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from tests.executors.structure.networks import randomised

layers = keras.layers


def network() -> keras.Model:
    inputs = keras.Input((6, 6, 2), name="image")
    x = layers.LeakyReLU(0.1)(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(inputs)))
    y = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x))
    x = layers.GlobalAveragePooling2D()(layers.ReLU(6.0)(layers.Add()([x, y])))
    return randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="scores")(x)))


def training_setup(model: keras.Model, teacher: bool = False) -> TrainingSetup:
    (train, outputs), (test, _) = (labelled(model, seed) for seed in (0, 1))
    params = TrainingParams(batch_size=16, temperature=1.0, distillation=1.0)
    return TrainingSetup(train, test, {"scores": outputs} if teacher else None, params)


def labelled(model: keras.Model, seed: int) -> tuple[Dataset, NDArray[np.float32]]:
    """Return inputs, the classes that the model predicts for them, and its outputs."""
    (tensor,) = model.inputs
    x = np.random.default_rng(seed).uniform(size=(120, *tensor.shape[1:])).astype(np.float32)
    outputs = model.predict(x, verbose=0)
    return Dataset({tensor.name: x}, {"scores": outputs.argmax(axis=1)}), outputs


def chain(*body: Any) -> keras.Model:
    """Return a model with eight numbers as input and three scores as output."""
    inputs = x = keras.Input((8,), name="x")
    for layer in body:
        x = layer(x)
    return randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="scores")(x)))


def rounded_tensors(model: keras.Model) -> list[str]:
    """Return the names of layers with rounded outputs; "" stands for an input."""
    graph = read_graph(rounding(model))
    written = {node.output: node.name for node in graph.nodes}
    return [written.get(node.inputs[0], "") for node in graph.nodes if isinstance(node.layer, Rounding)]


@pytest.mark.parametrize("values", [[-1.0, 0.26, 3.0], [0.5, 0.7, 0.9], [-2.0, -1.0, -0.4], [0.0, 0.0]])
def test_a_tensor_is_rounded_to_256_steps_of_a_range_that_contains_zero(values: list[float]) -> None:
    x = np.array(values, np.float32)
    steps = np.linspace(min(x.min(), 0), max(x.max(), 0), 256)
    rounded = np.asarray(Rounding()(x))
    distance = (steps[1] - steps[0]) / 2
    assert (
        np.abs(rounded - x).max() <= distance * 2
    )  # the range is shifted by half a step so that it contains 0
    assert np.asarray(Rounding()(np.array([*values, 0.0], np.float32)))[-1] == 0
    assert len(np.unique(Rounding()(np.linspace(-1, 3, 10_000, dtype=np.float32)))) <= 256


def test_gradients_pass_only_within_the_rounding_range() -> None:
    x = tf.Variable([-1.0, 0.26, 1.5, 3.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(Rounding()(x) * [1.0, 2.0, 3.0, 4.0])
    assert tape.gradient(loss, x).numpy()[1:3].tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("layer", "shape", "shared"),
    [
        (layers.Dense(4), (8,), (0,)),
        (layers.Conv2D(4, 3), (6, 6, 2), (0, 1, 2)),
        (layers.Conv2DTranspose(4, 3), (6, 6, 2), (0, 1, 3)),
        (layers.DepthwiseConv2D(3, depth_multiplier=2), (6, 6, 2), (0, 1)),
        (layers.Conv1DTranspose(4, 3), (6, 2), (0, 2)),
    ],
)
def test_each_kernel_channel_has_127_steps_on_either_side_of_zero(
    layer: Any, shape: tuple[int, ...], shared: tuple[int, ...]
) -> None:
    inputs = keras.Input(shape)
    (kernel,) = kernels(randomised(keras.Model(inputs, layer(inputs))))
    values = kernel.variable.numpy()
    scale = np.abs(values).max(axis=shared, keepdims=True) / 127
    np.testing.assert_allclose(RoundedKernel(kernel).values(), np.round(values / scale) * scale, atol=1e-6)


def test_kernels_inside_composite_layers_are_rounded() -> None:
    inputs = keras.Input((5, 4))
    x = layers.MultiHeadAttention(2, 4)(inputs, inputs)
    x = layers.Bidirectional(layers.GRU(3))(x)
    names = [kernel.variable.name for kernel in kernels(keras.Model(inputs, x))]
    assert names == ["kernel"] * 4 + ["kernel", "recurrent_kernel"] * 2


def test_fused_and_concatenated_tensors_are_rounded_once() -> None:
    inputs = keras.Input((8,), name="x")
    a, b = (layers.Dense(4, name=name)(inputs) for name in "ab")
    fused = layers.ReLU(name="relu")(a)
    x = layers.Concatenate(name="joined")([fused, b])
    model = keras.Model(inputs, layers.Dense(3, name="scores")(x))
    assert rounded_tensors(model) == ["", "joined"]


def test_tokens_and_outputs_are_not_rounded() -> None:
    tokens = keras.Input((5,), name="tokens")
    x = layers.GlobalAveragePooling1D(name="pool")(layers.Embedding(1000, 4, name="embedding")(tokens))
    scores = layers.Dense(3, name="scores")(x)
    model = keras.Model(tokens, [scores, layers.Dense(2, name="second")(scores)])
    assert rounded_tensors(model) == ["embedding", "pool", "scores"]
    some = np.array([[1, 500, 999, 3, 4]], np.float32)
    expected, actual = (network(some)[0].numpy() for network in (model, rounding(model)))
    np.testing.assert_allclose(actual, expected, atol=0.01)
    assert len(np.unique(rounding(model)(np.arange(5000).reshape(-1, 5) % 1000.0)[0])) > 512


@pytest.mark.sampled
@pytest.mark.parametrize("teacher", [False, True])
def test_a_network_can_be_trained_with_rounding(teacher: bool) -> None:
    model = network()
    setup = training_setup(model, teacher)
    x, y = setup.train.inputs["image"], setup.train.targets["scores"]
    taught = model.predict(x, verbose=0)
    rng = np.random.default_rng(0)
    model.set_weights([weight + 0.05 * rng.normal(size=weight.shape) for weight in model.get_weights()])
    before, after = (rounding(quantization_aware(model, setup, steps, 0)) for steps in (0, 30))
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(before.predict(x, verbose=0, batch_size=120), expected, atol=0.05)
    target = taught if teacher else np.eye(3)[y]
    losses = [-(target * np.log(each.predict(x, verbose=0))).sum(axis=1).mean() for each in (before, after)]
    assert losses[1] < losses[0]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_network() -> None:
    model = network()
    first, second, other = (quantization_aware(model, training_setup(model), 3, seed) for seed in (1, 1, 2))
    for left, right in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(first.get_weights()[0], other.get_weights()[0])


def test_the_source_model_is_not_changed_and_the_architecture_is_kept() -> None:
    model = network()
    before = [weight.copy() for weight in model.get_weights()]
    aware = quantization_aware(model, training_setup(model), 3, 0)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    assert [layer.name for layer in aware.layers] == [layer.name for layer in fold_batch_norm(model).layers]


def test_a_batch_norm_that_cannot_be_folded_keeps_its_statistics() -> None:
    model = chain(layers.BatchNormalization(name="norm"), layers.Dense(8, "relu"))
    folded = fold_batch_norm(model).get_layer("norm").get_weights()
    aware = quantization_aware(model, training_setup(model), 3, 0)
    for actual, expected in zip(aware.get_layer("norm").get_weights(), folded, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_dropout_drops_other_units_in_each_step() -> None:
    dropout = layers.Dropout(0.5)
    model = chain(layers.Dense(8, "relu"), dropout)
    states: Mapping[int, Any] = {
        steps: [
            layer.seed_generator.state.numpy().tolist()
            for layer in quantization_aware(model, training_setup(model), steps, 0).layers
            if isinstance(layer, layers.Dropout)
        ]
        for steps in (0, 2)
    }
    assert states[0][0][1] < states[2][0][1]
