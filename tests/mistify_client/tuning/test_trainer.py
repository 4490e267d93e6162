"""Training a package with LiteRT only, and serving the trained weights."""

import math
import shutil

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import mistify_client
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify_client import load_trainer, write_weights
from tests.mistify_client.tuning.devices import examples

RATE, KD_WEIGHT = 0.05, 0.5


@pytest.fixture
def trainable(data, tmp_path):
    """Return a package with a training network (`tests/data/make_trainable.py`)."""
    return shutil.copytree(data / "trainable", tmp_path / "trainable")


@pytest.fixture
def lesson(data):
    """Return a batch and TensorFlow's losses on it."""
    return dict(np.load(data / "trainable" / "expected.npz"))


@pytest.fixture
def trainer(trainable):
    return load_trainer(trainable, threads=1)


def steps(trainer, lesson, count):
    return [
        trainer.train_step(lesson["image"], lesson["scores"], RATE, lesson["taught"], KD_WEIGHT)
        for _ in range(count)
    ]


def served(network, images):
    signature = Interpreter(model_path=str(network)).get_signature_runner()
    return signature(image=images)["scores"]


def test_training_steps_agree_with_tensorflow(trainer, lesson):
    assert steps(trainer, lesson, 20) == pytest.approx(list(lesson["losses"]), rel=1e-4)


def test_trained_weights_are_served(trainer, trainable, lesson, tmp_path):
    before = served(trainable / "serve.tflite", lesson["image"])
    steps(trainer, lesson, 10)
    out = write_weights(trainable, trainer.weights(), tmp_path / "tuned.tflite")
    actual = served(out, lesson["image"])
    np.testing.assert_allclose(actual, trainer.infer(lesson["image"])["scores"], atol=1e-5)
    assert np.abs(actual - before).max() > 1e-2
    assert out.stat().st_size == (trainable / "serve.tflite").stat().st_size
    mistify_client.load(trainable)  # the package itself is unchanged


def test_some_of_the_weights_can_be_written(trainer, trainable, lesson, tmp_path):
    bias = np.array([0.0, 9.0, 0.0], np.float32)
    out = write_weights(trainable, {"scores/bias": bias}, tmp_path / "tuned.tflite")
    assert set(served(out, lesson["image"]).argmax(1)) == {1}


def test_writing_the_same_weights_changes_nothing(trainer, trainable, tmp_path):
    out = write_weights(trainable, trainer.weights(), tmp_path / "same.tflite")
    assert out.read_bytes() == (trainable / "serve.tflite").read_bytes()


def test_restored_weights_continue_without_momentum(trainer, lesson):
    weights = trainer.weights()
    first = steps(trainer, lesson, 5)
    trainer.restore(weights)
    assert steps(trainer, lesson, 5) == pytest.approx(first, rel=1e-6)


def test_returned_weights_do_not_change_with_the_next_step(trainer, lesson):
    weights = trainer.weights()
    kept = {name: values.copy() for name, values in weights.items()}
    steps(trainer, lesson, 1)
    for name, values in weights.items():
        np.testing.assert_array_equal(values, kept[name])


def test_evaluation_counts_correct_predictions(trainer, lesson):
    images = np.concatenate([lesson["image"]] * 2)[:11]
    predicted = trainer.infer(images)["scores"].argmax(1)
    wrong = (predicted + 1) % 3
    assert trainer.evaluate(images, predicted)[1:] == (11, 11)
    assert trainer.evaluate(images, np.r_[predicted[:4], wrong[4:8], [-1] * 3])[1:] == (4, 8)


def test_unknown_binary_labels_do_not_count(data):
    trainer = load_trainer(data / "trainable_kinds", threads=1)
    some = examples(1, 11)
    predicted = trainer.predictions(some)
    unknown = {name: np.full(11, -1) for name in ("softmax", "logits")} | {"figures": predicted["figures"]}
    answers = {name: (predicted[name] > 0.5).astype(int) for name in ("sigmoid", "logit")}
    for labels in answers.values():
        labels[:4] = -1
    answers["logit"][4:6] = 1 - answers["logit"][4:6]
    assert trainer.evaluate(some.inputs, unknown | answers)[1:] == (12, 14)


def test_predictions_are_probabilities_or_numbers(data):
    trainer = load_trainer(data / "trainable_kinds", threads=1)
    some = examples(1, 300)
    actual, outputs = trainer.predictions(some), trainer.infer(some.inputs)
    powers = np.exp(outputs["logits"])
    expected = outputs | {
        "logits": powers / powers.sum(axis=-1, keepdims=True),
        "logit": 1 / (1 + np.exp(-outputs["logit"])),
    }
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, atol=1e-6)


def test_adaptation_lowers_the_entropy(trainer, lesson):
    entropies = [trainer.adapt_step(lesson["image"], 0.05) for _ in range(5)]
    assert entropies == sorted(entropies, reverse=True)
    assert entropies[4] < entropies[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda inputs: inputs | {"image": inputs["image"][:5]}, "5 examples"),
        (lambda inputs: inputs | {"scores": inputs["scores"][:, None]}, "shape"),
        (lambda inputs: inputs | {"scores": inputs["scores"] + 0.5}, "int32"),
        (lambda inputs: inputs | {"taught": inputs["taught"][:, :2]}, "shape"),
        (lambda inputs: inputs | {"scores": inputs["scores"] + 3}, "expected 0 to 2, or -1"),
        (lambda inputs: inputs | {"scores": inputs["scores"] - 3}, "expected 0 to 2, or -1"),
    ],
)
def test_unsuitable_examples_are_reported(trainer, lesson, change, message):
    with pytest.raises(MistifyError) as caught:
        steps(trainer, change(lesson), 1)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert message in str(caught.value)


def test_classes_that_do_not_exist_are_not_evaluated(trainer, lesson):
    with pytest.raises(MistifyError, match=r"scores: got classes from .* expected 0 to 2, or -1"):
        trainer.evaluate(lesson["image"], lesson["scores"] + 3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1])
def test_learning_rates_and_weights_are_finite_and_not_negative(trainer, lesson, value):
    images, classes = lesson["image"], lesson["scores"]
    before = trainer.weights()
    for step in (
        lambda: trainer.train_step(images, classes, value),
        lambda: trainer.train_step(images, classes, 0.1, teacher=lesson["taught"], kd_weight=value),
        lambda: trainer.adapt_step(images, value),
    ):
        with pytest.raises(ValueError, match=f"is {value}: give a finite number from 0"):
            step()
    np.testing.assert_equal(trainer.weights(), before)


@pytest.mark.parametrize(
    "values", [np.zeros(4, np.float32), np.array([0.0, np.nan, 0.0], np.float32)], ids=["shape", "nan"]
)
def test_weights_with_wrong_shapes_are_not_written(trainable, tmp_path, values):
    with pytest.raises(MistifyError, match="scores/bias") as caught:
        write_weights(trainable, {"scores/bias": values}, tmp_path / "tuned.tflite")
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert list(tmp_path.iterdir()) == [trainable]


def test_unknown_weights_are_not_written(trainable, tmp_path):
    with pytest.raises(MistifyError, match="'scores/biases' is not trained"):
        write_weights(trainable, {"scores/biases": np.zeros(3)}, tmp_path / "tuned.tflite")


def test_incomplete_weights_are_not_restored(trainer):
    weights = trainer.weights()
    del weights["scores/bias"]
    with pytest.raises(MistifyError, match="scores/bias"):
        trainer.restore(weights)


def test_the_error_names_missing_weights(trainer):
    weights = trainer.weights()
    with pytest.raises(MistifyError, match=r"leave out scores/biases$") as caught:
        trainer.restore(weights | {"scores/biases": np.zeros(3)})
    assert caught.value.code is ErrorCode.INVALID_DATASET
    weights["scores/biases"] = weights.pop("scores/bias")
    with pytest.raises(MistifyError, match=r"fix scores/bias; leave out scores/biases$"):
        trainer.restore(weights)


def test_the_error_without_a_training_network_gives_the_reason(package, tmp_path):
    manifest = Manifest.load(package)
    manifest.model_copy(update={"training_note": "cannot be trained on a device: Conv3D"}).save(package)
    with pytest.raises(MistifyError, match="Conv3D") as caught:
        load_trainer(package)
    assert caught.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(MistifyError, match="Conv3D"):
        write_weights(package, {}, tmp_path / "tuned.tflite")


def test_the_error_without_a_training_network_says_how_to_get_one(package):
    with pytest.raises(MistifyError, match=r'has no train.tflite: .*"tuning": {"trainable": "network"}'):
        load_trainer(package)


def test_a_damaged_training_network_is_refused(trainable):
    content = bytearray((trainable / "train.tflite").read_bytes())
    content[len(content) // 2] ^= 1
    (trainable / "train.tflite").write_bytes(content)
    with pytest.raises(MistifyError, match="damaged"):
        load_trainer(trainable)
