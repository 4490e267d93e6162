"""Manifests survive a round trip, and damage is detected."""

import hashlib
import json
from datetime import UTC, datetime

import numpy as np
import pytest

from mistify.config.data.preparation import ImagePreparation, Preparation, TokenPreparation
from mistify.config.task import TaskConfig
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import FORMAT_VERSION, MANIFEST, Manifest, MeasuredLatency, TensorInfo, Versions
from mistify.package.records import describe_file
from mistify.package.verification import verify
from tests.support.targets import overall


@pytest.fixture
def package(tmp_path):
    network = tmp_path / "serve.tflite"
    network.write_bytes(b"network" * 1000)
    manifest = Manifest(
        job="job-1",
        goal="flop-50",
        budget={"flops": 6.25e6},
        targets=overall(0.7),
        achieved={"flops": 6.1e6, "latency_ms@host": 0.31},
        accuracy=0.76,
        validation_accuracy=0.78,
        latency=MeasuredLatency(
            median_ms=0.4, p95_ms=0.5, runs=50, threads=1, machine="x86_64", runtime="2.3.0"
        ),
        inputs=(TensorInfo(name="image", dtype="float32", shape=(-1, 32, 32, 3)),),
        outputs=(TensorInfo(name="probabilities", dtype="float32", shape=(-1, 10)),),
        versions=Versions(mistify="0.1.0", tensorflow="2.21.0", keras="3.15.1"),
        files={"serve.tflite": describe_file(network)},
        created=datetime(2026, 1, 2, tzinfo=UTC),
    )
    manifest.save(tmp_path)
    return tmp_path, manifest


def change(directory, **values):
    path = directory / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def failure(directory, read=verify):
    with pytest.raises(MistifyError) as caught:
        read(directory)
    return caught.value


def test_a_manifest_survives_a_round_trip(package):
    directory, manifest = package

    assert Manifest.load(directory) == manifest
    assert verify(directory) == manifest


def test_values_are_quantized_and_dequantized():
    tensor = TensorInfo(name="image", dtype="int8", shape=(-1, 4), scale=0.5, zero_point=-3)
    stored = tensor.quantized([[-100.0, 0.0, 0.7, 100.0]])
    assert stored.dtype == np.int8
    np.testing.assert_array_equal(stored, [[-128, -3, -2, 127]])
    np.testing.assert_array_equal(tensor.dequantized(stored), [[-62.5, 0.0, 0.5, 65.0]])


def test_values_without_a_scale_are_stored_unchanged():
    tensor = TensorInfo(name="image", dtype="float32", shape=(-1, 2))
    np.testing.assert_array_equal(tensor.quantized([[1, 2]]), np.float32([[1, 2]]))
    assert tensor.dequantized(np.float32([[0.3]])) == np.float32(0.3)


def test_a_digest_is_computed_from_the_bytes(package):
    directory, _ = package
    stored = json.loads((directory / MANIFEST).read_text())["files"]["serve.tflite"]

    assert stored == {"size": 7000, "sha256": hashlib.sha256(b"network" * 1000).hexdigest()}


def test_a_single_changed_byte_is_detected(package):
    directory, manifest = package
    (directory / "serve.tflite").write_bytes(b"network" * 999 + b"netwerk")
    error = failure(directory)

    assert error.code is ErrorCode.CORRUPT_PACKAGE
    assert [problem.place for problem in error.problems] == [str(directory / "serve.tflite")]
    assert manifest.files["serve.tflite"].sha256 in error.problems[0].expected
    assert hashlib.sha256(b"network" * 999 + b"netwerk").hexdigest() in error.problems[0].value


def test_a_missing_file_is_detected(package):
    directory, _ = package
    (directory / "serve.tflite").unlink()

    assert failure(directory).problems[0].value == "no such file"


def test_a_directory_without_a_manifest_is_not_found(tmp_path):
    assert failure(tmp_path, Manifest.load).code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format_version": 1}', "\x80"])
def test_an_invalid_manifest_is_a_corrupt_package(package, text):
    directory, _ = package
    (directory / MANIFEST).write_text(text, encoding="latin-1")

    assert failure(directory, Manifest.load).code is ErrorCode.CORRUPT_PACKAGE


def test_the_error_of_a_newer_format_says_what_to_do(package):
    directory, _ = package
    change(directory, format_version=6, something="new")
    error = failure(directory, Manifest.load)

    assert error.code is ErrorCode.STORE_VERSION
    assert "update Mistify" in str(error)


def test_a_manifest_of_the_first_format_is_read(package):
    """This format had only test accuracies, and chose branches by them."""
    directory, manifest = package
    content = json.loads((directory / MANIFEST).read_text())
    branch = {"share": 1.0, "achieved": {}, "accuracy": 0.7, "latency": content["latency"]}
    content |= {"format_version": 1, "branches": [branch, {**branch, "accuracy": 0.8}]}
    content["accuracy_target"] = 0.75
    for later in ("validation_accuracy", "validation_output_scores", "targets"):
        del content[later]
    (directory / MANIFEST).write_text(json.dumps(content))
    loaded = Manifest.load(directory)
    assert loaded.validation_accuracy == loaded.accuracy == manifest.accuracy
    assert [branch.validation_accuracy for branch in loaded.branches] == [0.7, 0.8]
    assert (loaded.format_version, loaded.targets) == (FORMAT_VERSION, overall(0.75))


def test_a_manifest_without_new_fields_stays_readable_by_older_clients(package):
    directory, manifest = package
    content = json.loads((directory / MANIFEST).read_text())
    assert content["format_version"] == 2
    assert not {"labels", "preparation", "task"} & set(content)
    assert Manifest.load(directory).format_version == manifest.format_version == FORMAT_VERSION


def test_inputs_with_channels_first_need_the_newest_format(package):
    directory, manifest = package
    inputs = tuple(info.model_copy(update={"channels_first": True}) for info in manifest.inputs)
    manifest = manifest.model_copy(update={"inputs": inputs})
    manifest.save(directory)
    content = json.loads((directory / MANIFEST).read_text())
    assert (content["format_version"], content["inputs"][0]["channels_first"]) == (5, True)
    assert Manifest.load(directory) == manifest


def test_a_task_needs_format_four(package):
    directory, manifest = package
    task = TaskConfig(classes=("cat", "dog"))
    Manifest.model_validate(manifest.model_dump() | {"task": task}).save(directory)
    content = json.loads((directory / MANIFEST).read_text())
    assert (content["format_version"], content["task"]) == (4, {"classes": ["cat", "dog"]})
    assert Manifest.load(directory).task == task


def test_labels_and_preparations_need_format_three(package):
    directory, manifest = package
    fields = {
        "labels": {"probabilities": ("cat", "dog")},
        "preparation": {
            "image": Preparation(
                image=ImagePreparation(size=(8, 8), colour="bgr", mean=(1, 2, 3), std=(4, 5, 6))
            ),
            "text": Preparation(tokens=TokenPreparation(length=5, vocabulary="vocab.txt")),
        },
    }
    manifest = Manifest.model_validate(manifest.model_dump() | fields)
    manifest.save(directory)
    content = json.loads((directory / MANIFEST).read_text())
    assert content["format_version"] == 3
    assert "task" not in content
    assert content["labels"] == {"probabilities": ["cat", "dog"]}
    assert content["preparation"]["text"] == {"tokens": {"length": 5, "vocabulary": "vocab.txt"}}
    assert Manifest.load(directory) == manifest
    assert (manifest.labels, manifest.preparation) == tuple(fields.values())


def test_problems_are_reported_at_their_places(package):
    directory, _ = package
    change(directory, accuracy=-1.5, unknown=1, outputs=[{"name": "y", "dtype": "float32", "shape": ["a"]}])
    places = {problem.place for problem in failure(directory, Manifest.load).problems}

    assert places == {"accuracy", "unknown", "outputs[0].shape[0]"}


def test_a_score_is_at_most_one_unless_it_is_an_error(package):
    directory, _ = package
    change(directory, accuracy=1.5, metric="mse", targets=[{"output": "", "metric": "mse", "value": 2.0}])
    assert Manifest.load(directory).accuracy == 1.5
    change(directory, metric="f1")
    assert "f1 above 1" in str(failure(directory, Manifest.load))
    change(directory, accuracy=0.5, targets=[{"output": "kind", "metric": "roc_auc", "value": 2.0}])
    assert "roc_auc above 1" in str(failure(directory, Manifest.load))


@pytest.mark.parametrize("name", ["../serve.tflite", "/etc/passwd", "a/b", "..", "", ".hidden", "a\n"])
def test_file_names_outside_the_package_are_refused(package, name):
    directory, manifest = package
    file = manifest.files["serve.tflite"].model_dump()
    change(directory, files={name: file})

    assert failure(directory, Manifest.load).code is ErrorCode.CORRUPT_PACKAGE
