"""Training in LiteRT, compared with TensorFlow: gradients, steps, and other signatures."""

import errno

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.tools import flatbuffer_utils

from executors.structure.signature import output_names
from mistify.tflite.memory import memory_bytes
from mistify_server.worker.packaging.scheduling.memory import with_little_memory
from mistify_server.worker.packaging.training.network import convert_training, target_of, tensor_of
from mistify_server.worker.packaging.training.operations.builtins import UntrainableError
from tests.mistify_server.worker.packaging.training.networks import (
    NETWORKS,
    inputs_of,
    lesson_of,
    network,
    objectives_of,
    places_of,
    targets_of,
    taught_of,
    trained,
)

layers = keras.layers
STEPS = 50
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(RATE, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(RATE),
}
RATE = 0.01
SHARE = 0.5

#: Settings of the trained part -> the layers and weights of "residual_identity" that are trained.
PARTS = [
    ("biases", ["stem/bias", "a1/bias", "a2/bias", "b1/bias", "b2/bias", "logits"]),
    ("head", ["logits"]),
    (2, ["b1", "b2", "logits"]),
]

#: One network of each kind that is fast to build; the others are marked slow because they are many.
QUICK = ("depthwise",)
ALL = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in NETWORKS]


class Device:
    """The training network of a model in LiteRT."""

    def __init__(self, model, **options):
        self.model = model
        self.made = trained(model, **options)
        self.content = with_little_memory(convert_training(self.made))
        self.interpreter = Interpreter(model_content=self.content, num_threads=1)
        self.setup = lesson_of(model)

    def run(self, signature, **value):
        return self.interpreter.get_signature_runner(signature)(**value)

    def step(self, rate=RATE, share=SHARE):
        scalars = {"kd_weight": np.float32(share), "learning_rate": np.float32(rate)}
        return float(self.run("train", **self.setup, **scalars)["loss"])

    def weights(self):
        actual = self.run("weights")
        return [actual[tensor_of(at)] for at in range(len(self.made.weights))]

    def operators(self):
        content = flatbuffer_utils.read_model_from_bytearray(bytearray(self.content))
        return {
            flatbuffer_utils.opcode_to_name(content, operator.opcodeIndex)
            for graph in content.subgraphs
            for operator in graph.operators
        }


class Reference:
    """The same training in TensorFlow, on a copy of the model."""

    def __init__(self, model, optimizer):
        self.model = keras.models.clone_model(model)
        self.model.set_weights(model.get_weights())
        self.optimizer = OPTIMIZERS[optimizer]()
        self.objectives = objectives_of(model)

    def loss(self):
        value = list(inputs_of(self.model).values())
        predicted = tf.nest.flatten(self.model(value if len(value) > 1 else value[0], training=False))
        outputs = dict(zip(output_names(self.model), predicted, strict=True))
        targets, taught = targets_of(self.model), taught_of(self.model)
        return tf.add_n(
            [
                objective.loss(outputs[name], targets[name])
                + SHARE * objective.distillation(outputs[name], targets[name], taught[name], 1.0)
                for name, objective in self.objectives.items()
            ]
        )

    def gradients(self):
        with tf.GradientTape() as tape:
            loss = self.loss()
        actual = tape.gradient(loss, self.model.trainable_variables)
        return float(loss), [tf.convert_to_tensor(gradient) for gradient in actual]

    def step(self):
        loss, gradients = self.gradients()
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return loss


@pytest.mark.parametrize("name", ALL)
def test_gradients_and_steps_agree_with_tensorflow(name):
    """The first step with momentum moves each weight by the learning rate times its gradient."""
    device = Device(network(name))
    assert not any(operator is None or operator in ("CUSTOM", "FlexOp") for operator in device.operators())
    reference = Reference(device.model, "sgd")
    before = device.weights()
    device.step(rate=1.0)
    _, gradients = reference.gradients()
    expected = [gradients[at] for at in places_of(device.model)]
    moved = [old - new for old, new in zip(before, device.weights(), strict=True)]
    largest = max(np.abs(gradient).max() for gradient in expected)
    for ours, theirs in zip(moved, expected, strict=True):
        assert np.abs(ours - theirs).max() <= 1e-4 * max(np.abs(theirs).max(), 1e-2 * largest)
    restored(device, before)
    losses = [device.step() for _ in range(STEPS)]
    assert_same_course(losses, [reference.step() for _ in range(STEPS)])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "chain" else [pytest.mark.slow]) for name in list(NETWORKS)[:28]],
)
def test_steps_of_adam_agree_with_tensorflow(name):
    device = Device(network(name), optimizer="adam")
    reference = Reference(device.model, "adam")
    assert_same_course([device.step() for _ in range(STEPS)], [reference.step() for _ in range(STEPS)])


@pytest.mark.parametrize("micro_batch", [1, 2, 3])
@pytest.mark.parametrize("name", ALL)
def test_micro_batches_take_the_steps_of_the_whole_batch(name, micro_batch):
    """Some targets are ignored, so that micro-batches count differently."""
    whole, parts = Device(network(name)), Device(network(name), micro_batch=micro_batch)
    for device in (whole, parts):
        for target in map(target_of, device.made.objectives):
            if device.setup[target].dtype == np.int32:
                device.setup[target].reshape(-1)[[0, 3]] = -1
    losses = [[device.step() for _ in range(5)] for device in (whole, parts)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    for ours, theirs in zip(parts.weights(), whole.weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-4 * max(np.abs(theirs).max(), 0.1))


def test_a_micro_batch_takes_the_step_of_the_whole_batch():
    """Two of three targets of the second micro-batch are ignored."""
    inputs = keras.Input((4,), name="steps")
    model = keras.Model(inputs, layers.Dense(3, name="out")(layers.Dense(5, activation="relu")(inputs)))
    whole, parts = Device(model), Device(model, micro_batch=3)
    for device in (whole, parts):
        device.setup["target_out"][[3, 5]] = -1
    assert parts.step() == pytest.approx(whole.step(), rel=1e-5)
    for ours, theirs in zip(parts.weights(), whole.weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_micro_batches_adapt_as_the_whole_batch_does():
    devices = [Device(network("depthwise"), **options) for options in ({}, {"micro_batch": 2})]
    for device in devices:
        for _ in range(3):
            device.run("adapt", **inputs_of(device.model), learning_rate=np.float32(0.1))
    for ours, theirs in zip(*[device.weights() for device in devices], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_micro_batches_take_less_memory():
    whole, parts = (Device(network("depthwise"), **options) for options in ({}, {"micro_batch": 1}))
    assert memory_bytes(parts.content, ["train"]) < 0.75 * memory_bytes(whole.content, ["train"])


def restored(device, weights):
    device.run("restore", **{tensor_of(at): weight for at, weight in enumerate(weights)})
    device.run("reset")


def assert_same_course(losses, expected):
    assert len(set(losses)) > STEPS // 2, "nothing was trained"
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-4 * max(np.abs(expected)))


@pytest.fixture(scope="module")
def device():
    return Device(network("residual_identity"))


@pytest.fixture
def fresh(device):
    """Return the device with its initial weights."""
    restored(device, [weight.numpy() for weight in device.made.weights])
    return device


@pytest.mark.parametrize("count", [1, 2, 11])
def test_inference_supports_batches_of_any_size(fresh, count):
    inputs = inputs_of(fresh.model, count=count)
    expected = fresh.model.predict(list(inputs.values()), verbose=0)
    actual = fresh.run("infer", **inputs)[output_names(fresh.model)[0]]
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("count", [1, 11])
def test_correct_predictions_are_counted(fresh, count):
    inputs, (name,) = inputs_of(fresh.model, count=count), output_names(fresh.model)
    predicted = fresh.model.predict(list(inputs.values()), verbose=0)
    targets = predicted.argmax(-1).astype(np.int32)
    targets[0] = -1
    targets[4:6] = (targets[4:6] + 1) % 3
    actual = fresh.run("evaluate", **inputs, **{target_of(name): targets})
    assert (actual["correct"], actual["counted"]) == ((8, 10) if count == 11 else (0, 0))
    kept = targets >= 0
    spread = predicted - np.log(np.exp(predicted).sum(-1, keepdims=True))
    entropies = -spread[kept, targets[kept]]
    assert actual["loss"] == pytest.approx(entropies.mean() if count == 11 else 0, rel=1e-5)


def test_momentum_is_kept_and_reset(fresh):
    weights = fresh.weights()
    first = [fresh.step() for _ in range(3)]
    assert first[2] < first[0]
    fresh.run("restore", **{tensor_of(at): weight for at, weight in enumerate(weights)})
    assert fresh.step() == pytest.approx(first[0], rel=1e-6)
    assert abs(fresh.step() - first[1]) > 1e-4 * first[1], "the momentum of three steps should be kept"
    restored(fresh, weights)
    assert [fresh.step() for _ in range(3)] == pytest.approx(first, rel=1e-6)


def test_adaptation_increases_confidence_by_only_changing_scales_and_shifts(fresh):
    before, inputs = fresh.weights(), inputs_of(fresh.model)
    entropies = [float(fresh.run("adapt", **inputs, learning_rate=np.float32(0.1))["loss"]) for _ in range(9)]
    predicted = fresh.model.predict(list(inputs.values()), verbose=0)
    shares = np.exp(predicted) / np.exp(predicted).sum(-1, keepdims=True)
    assert entropies[0] == pytest.approx(-(shares * np.log(shares)).sum(-1).mean(), rel=1e-4)
    assert entropies == sorted(entropies, reverse=True)
    for old, new in zip(before, fresh.weights(), strict=True):
        assert np.array_equal(old, new) == (old.ndim > 1)


@pytest.mark.sampled
@pytest.mark.parametrize(("part", "names"), PARTS)
def test_only_the_selected_part_is_trained(part, names):
    device = Device(network("residual_identity"), trainable=part)
    before = device.weights()
    losses = [device.step() for _ in range(20)]
    assert losses[-1] < losses[0]
    assert all(not np.array_equal(old, new) for old, new in zip(before, device.weights(), strict=True))
    reference = Reference(device.model, "sgd")
    for layer in reference.model.layers:
        for variable in layer.trainable_variables:
            variable.trainable = {layer.name, variable.path} & {*names}
    assert len(device.made.weights) == len(reference.model.trainable_variables)
    assert losses == pytest.approx([reference.step() for _ in range(20)], rel=1e-4)


def test_convolutions_after_upsampling_may_be_frozen():
    """Keras computes the new shape, from which the converter does not know the channels."""
    inputs = keras.Input((6, 5, 3), name="image")
    enlarged = layers.UpSampling2D(2)(layers.Conv2D(4, 3, name="stem")(inputs))
    device = Device(keras.Model(inputs, layers.Dense(3)(layers.Conv2D(5, 3)(enlarged))), trainable="biases")
    reference = Reference(device.model, "sgd")
    for layer in reference.model.layers[:-1]:
        for variable in layer.trainable_variables:
            variable.trainable = variable.name == "bias"
    assert [device.step() for _ in range(5)] == pytest.approx([reference.step() for _ in range(5)], rel=1e-4)


@pytest.mark.slow
def test_operations_missing_in_litert_are_reported():
    inputs = keras.Input((4, 5, 5, 2), name="volume")
    x = layers.GlobalAveragePooling3D()(layers.Conv3D(3, 2)(inputs))
    with pytest.raises(UntrainableError):
        convert_training(trained(keras.Model(inputs, layers.Dense(3)(x))))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOSPC, "no space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "out of memory"),
    ],
)
def test_a_full_disk_is_not_blamed_on_the_network(error, monkeypatch):
    made = trained(network("depthwise"))

    def signatures():
        raise error

    monkeypatch.setattr(made, "signatures", signatures)
    with pytest.raises(type(error)) as caught:
        convert_training(made)
    assert caught.value is error
