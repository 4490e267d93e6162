"""Packages: their manifests, and the refusal of unsuitable ones."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from executors.data import Dataset
from executors.structure import fold_batch_norm
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify.config.data.preparation import TokenPreparation
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.package.tuning import TuningConfig
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify_client.tuning.trainer import PackageTrainer
from mistify_server.worker.packaging import models as packaging
from mistify_server.worker.packaging.measurement.isolated import latencies_of
from mistify_server.worker.packaging.tflite.memory import memory_bytes
from tests.mistify_server.recipes import by_recipe
from tests.mistify_server.worker.packaging.networks import (
    images,
    network,
    package_task,
    packaged,
    training_setup,
)
from tests.support.targets import overall

layers = keras.layers
TASK = package_task(
    budget={"flops": 1e6},
    targets=overall(0.7),
    tuning=TuningConfig(trainable="network", optimizer="sgd"),
)
FLOAT16 = package_task(quantization=QuantizationConfig(precision=Quantization.FLOAT16))
INT8 = package_task(quantization=QuantizationConfig(precision=Quantization.INT8, inputs="int8"))


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture(scope="module")
def setup(model):
    return training_setup(model)


@pytest.fixture(scope="module")
def package(model, setup):
    return packaged(model, TASK, setup)


@pytest.fixture(scope="module")
def int8(model, setup):
    return packaged(model, INT8, setup)


def test_a_package_describes_itself(package, tmp_path):
    for name, content in package.files.items():
        (tmp_path / name).write_bytes(content)
    manifest = Manifest.load(tmp_path)
    assert manifest == package.manifest
    assert set(package.files) == {"serve.tflite", "train.tflite", "manifest.json"}
    assert (manifest.training.trainable, manifest.training_note) == ("network", "")
    assert (manifest.job, manifest.goal) == ("job-1", "half")
    assert (manifest.budget, manifest.targets) == ({"flops": 1e6}, overall(0.7))
    size = len(package.files["serve.tflite"])
    memory = memory_bytes(package.files["serve.tflite"])
    assert manifest.achieved == {**TASK.costs, "size_bytes": size, "memory_bytes": memory}
    assert manifest.files["serve.tflite"].size == size
    assert manifest.versions.keras == keras.__version__
    assert manifest.quantization is Quantization.NONE


@pytest.mark.slow
def test_a_package_contains_what_apps_need(model, setup, tmp_path):
    """Class names from the training data, the declared preparation, and a file needed for it."""
    (tmp_path / "vocab.txt").write_text("[UNK]\nword\n")
    settings = DataSettings(
        preparation={"ids": {"tokens": {"vocabulary": str(tmp_path / "vocab.txt")}}},
        labels={"": ("cat", "dog", "eel")},
    )
    ids = keras.Input((4,), name="ids")
    inputs = [*model.inputs, ids]
    two = keras.Model(inputs, layers.Add(name="sum")([model.outputs[0], layers.Dense(3)(ids)]))
    train = Dataset(
        {**setup.train.inputs, "ids": np.zeros((len(setup.train), 4), np.int64)},
        {"sum": setup.train.targets["scores"]},
    )
    described = replace(setup, train=train, validation=train, settings=settings)
    task = package_task()
    made = packaged(two, task, described)
    assert made.manifest.labels == {"sum": ("cat", "dog", "eel")}
    assert made.manifest.preparation["ids"].tokens == TokenPreparation(length=4, vocabulary="vocab.txt")
    assert made.files["vocab.txt"] == b"[UNK]\nword\n"
    assert made.manifest.files["vocab.txt"].size == 11
    named = replace(setup, train=replace(setup.train, classes={"scores": ("a", "b", "c")}))
    assert packaged(model, task, named).manifest.labels == {"scores": ("a", "b", "c")}


def test_classes_that_were_not_trained_on_are_noted(package, setup):
    assert 0 not in setup.train.targets["scores"]
    assert package.manifest.note == "no training example of class 0: it may have been forgotten"


def test_the_accuracy_of_a_package_is_that_of_its_network_and_not_of_the_checkpoint(package):
    """Four of five labels are the classes predicted by the network."""
    assert (package.manifest.accuracy, package.manifest.accuracy_examples) == (0.8, 70)


def test_the_accuracy_of_an_int8_package_is_its_own(int8, setup):
    interpreter = Interpreter(model_content=int8.files["serve.tflite"])
    (taken,), (arguments,) = interpreter.get_input_details(), interpreter.get_output_details()
    scale, zero_point = taken["quantization"]
    right = 0
    for image, label in zip(
        setup.validation.inputs["image"], setup.validation.targets["scores"], strict=True
    ):
        interpreter.allocate_tensors()
        stored = np.clip(np.round(image / np.float32(scale)) + zero_point, -128, 127).astype(np.int8)
        interpreter.set_tensor(taken["index"], stored[None])
        interpreter.invoke()
        right += interpreter.get_tensor(arguments["index"])[0].argmax() == label
    assert int8.manifest.accuracy == pytest.approx(right / 70)
    assert int8.manifest.quantization is Quantization.INT8


def test_an_int8_package_states_its_scales(int8):
    (taken,), (arguments,) = int8.manifest.inputs, int8.manifest.outputs
    assert (taken.name, taken.dtype, arguments.name, arguments.dtype) == ("image", "int8", "scores", "int8")
    assert (arguments.scale, arguments.zero_point) == (1 / 256, -128)
    assert int8.manifest.achieved["size_bytes@int8"] == len(int8.files["serve.tflite"])


def test_latency_is_only_measured_on_this_machine(package):
    """The task also has other hardware, for which nothing is measured."""
    measured = package.manifest.measured
    assert measured["latency_ms@host"] == package.manifest.latency.median_ms
    assert "latency_ms@pi" not in measured


@pytest.mark.slow
def test_a_package_is_measured_with_the_threads_of_its_goal(model, setup, monkeypatch):
    """So is the float32 network that it is compared with."""
    used = []

    def measured(networks, threads=1):
        used.append((len(networks), threads))
        return latencies_of(networks, threads)

    monkeypatch.setattr("mistify_server.worker.packaging.measurement.package.latencies_of", measured)
    made = packaged(model, package_task(quantization=FLOAT16.spec.quantization, threads=2), setup)
    assert made.manifest.latency.threads == 2
    assert used == [(2, 2)]
    assert made.manifest.measured.keys() == {
        "latency_ms@host@2-threads",
        "latency_ms@host@2-threads@float16",
    }


@pytest.mark.sampled
@pytest.mark.parametrize("other", ["other weights", "other classes"])
def test_a_package_that_differs_from_its_checkpoint_is_refused(model, setup, monkeypatch, other):
    if other == "other weights":
        made = keras.models.clone_model(model)
        made.set_weights([weight * 1.001 for weight in model.get_weights()])
    else:
        image = keras.Input((8, 8, 2), name="image")
        made = keras.Model(image, layers.Dense(2, name="scores")(layers.Flatten()(image)))
    convert = packaging.convert_trainable
    monkeypatch.setattr(packaging, "convert_trainable", lambda _, *arguments: convert(made, *arguments))
    with pytest.raises(MistifyError, match="the package cannot be used") as caught:
        packaged(model, TASK, setup)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


@pytest.mark.slow
def test_non_finite_outputs_are_refused(model, setup):
    broken = keras.models.clone_model(model)
    broken.set_weights([np.full_like(weight, np.nan) for weight in model.get_weights()])
    with pytest.raises(MistifyError, match="output scores is nan for example"):
        packaged(broken, TASK, setup)


@pytest.mark.slow
def test_integer_inputs_are_supported(model, setup):
    x = (255 * images(9)).astype(np.uint8)
    whole = Dataset({"image": x}, {"scores": model.predict(x, verbose=0).argmax(axis=1)})
    package = packaged(model, INT8, replace(setup, train=whole, validation=whole))
    assert package.manifest.inputs[0].scale == pytest.approx(1.0, rel=0.05)


def test_a_float32_package_can_be_trained(package, setup):
    """Half of the labels in the training data are its predictions, and it learns the others."""
    trainer = opened(package)
    images, classes = (next(iter(part.values()))[:32] for part in (setup.train.inputs, setup.train.targets))
    losses = [trainer.train_step(images, classes, 0.05) for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0]


def opened(package):
    interpreter = Interpreter(model_content=package.files["train.tflite"])
    return PackageTrainer(package.manifest, package.manifest.training, interpreter)


def test_trainable_weights_are_those_of_the_checkpoint_without_batch_norm(package, model):
    folded = fold_batch_norm(model)
    expected = {
        f"{layer.name}/{name}": getattr(layer, name).numpy()
        for layer in folded.layers
        for name in ("kernel", "bias")
        if hasattr(layer, name)
    }
    actual = opened(package).weights()
    assert actual.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(actual[name], weight)


@pytest.mark.sampled
@pytest.mark.parametrize("task", [INT8, FLOAT16], ids=["int8", "float16"])
def test_packages_of_another_precision_have_no_training_network(model, setup, task):
    package = packaged(model, task, setup)
    assert set(package.files) == {"serve.tflite", "manifest.json"}
    assert package.manifest.training is None


@pytest.mark.slow
def test_a_layer_that_cannot_be_trained_leaves_the_package_without_a_training_network():
    inputs = keras.Input((4, 4, 4, 2), name="image")
    x = layers.Conv3D(3, 2, activation="relu")(inputs)
    volumes = keras.Model(inputs, layers.Dense(3, "softmax", name="scores")(layers.Flatten()(x)))
    rng = np.random.default_rng(0)
    data = Dataset(
        {"image": rng.normal(size=(40, 4, 4, 4, 2)).astype(np.float32)}, {"scores": rng.integers(0, 3, 40)}
    )
    package = packaged(volumes, TASK, replace(training_setup(network()), train=data, validation=data))
    assert set(package.files) == {"serve.tflite", "manifest.json"}
    assert package.manifest.training is None
    assert "cannot be trained on a device" in package.manifest.training_note


@pytest.mark.slow
def test_only_the_requested_part_is_trained(model, setup):
    head = packaged(model, package_task(tuning=TuningConfig(trainable="head", optimizer="adam")), setup)
    assert [weight.name for weight in head.manifest.training.weights] == ["scores/kernel", "scores/bias"]
    assert len(head.files["train.tflite"]) < 100_000


@pytest.mark.slow
def test_class_weights_count_in_the_training_network(model, setup):
    weighted = replace(setup, settings=DataSettings(class_weights=(1.0, 1.0, 9.0)))
    trainer = opened(
        packaged(model, package_task(tuning=TuningConfig(trainable="head", optimizer="sgd")), weighted)
    )
    classes = np.array([1, 2, 2, 0])
    predicted = trainer.infer(images(4))["scores"]
    counts = np.array([1.0, 9.0, 9.0, 1.0])
    expected = -(counts * np.log(predicted[range(4), classes])).sum() / counts.sum()
    assert trainer.evaluate(images(4), classes).loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_convolutions_over_one_dimension_are_trained_on_a_device():
    inputs = keras.Input((8, 2), name="image")
    x = layers.GlobalAveragePooling1D()(layers.Conv1D(4, 3, name="in_time")(inputs))
    model = keras.Model(inputs, layers.Dense(3, "softmax", name="scores")(x))
    data = Dataset(
        {"image": np.random.default_rng(0).normal(size=(70, 8, 2)).astype(np.float32)},
        {"scores": np.arange(70) % 3},
    )
    package = packaged(model, TASK, replace(training_setup(network()), train=data, validation=data))
    assert set(package.files) == {"serve.tflite", "train.tflite", "manifest.json"}
    assert package.manifest.training_note == ""


def test_a_package_without_tuning_has_one_network(model, setup):
    package = packaged(model, package_task(), setup)
    assert set(package.files) == {"serve.tflite", "manifest.json"}
    assert package.manifest.training_note == ""


def detector():
    """Return a network that predicts a class and a box for each image."""
    inputs = keras.Input((8, 8, 2), name="image")
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(6, 3, activation="relu")(inputs))
    outputs = [layers.Dense(3, "softmax", name="kind")(x), layers.Dense(4, name="box")(x)]
    return keras.Model(inputs, outputs)


def boxed(model, count, seed, off):
    """Return images with the classes predicted by a model, and boxes with the given offset."""
    x = np.random.default_rng(seed).uniform(size=(count, 8, 8, 2)).astype(np.float32)
    kinds, boxes = model.predict(x, verbose=0)
    return Dataset({"image": x}, {"kind": kinds.argmax(axis=1), "box": boxes + np.float32(off)})


@pytest.mark.slow
def test_each_output_is_scored_on_test_data_and_the_overall_score_on_both_data_sets():
    keras.utils.set_random_seed(0)
    model = detector()
    setup = replace(
        training_setup(network()),
        train=boxed(model, 80, 1, 0.0),
        validation=boxed(model, 70, 2, 0.0),
        settings=DataSettings(metric="mean_score", metrics={"box": "mae"}),
    )
    data = TASK.recipe.data.model_copy(update={"settings": setup.settings})
    task = by_recipe(package_task(), data=data)
    manifest = packaged(model, task, setup, boxed(model, 60, 3, 0.5)).manifest
    kind, box = manifest.output_scores
    assert (kind.output, kind.metric, kind.value) == ("kind", Metric.ACCURACY, 1.0)
    assert (box.output, box.metric) == ("box", Metric.MAE)
    assert box.value == pytest.approx(0.5, abs=1e-5)
    assert manifest.validation_accuracy == pytest.approx(1.0, abs=1e-5)
    assert manifest.accuracy == pytest.approx(0.5)  # the boxes explain no variance
    assert manifest.accuracy_examples == 60
