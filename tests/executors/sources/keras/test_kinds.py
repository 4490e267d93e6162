"""Sources other than a single model file."""

import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from executors.inspection.names import APPLICATIONS
from executors.sources.keras.applications import application
from executors.sources.keras.loading import load_application, load_keras
from executors.sources.keras.presets import load_preset
from mistify.errors import ErrorCode, MistifyError


def refused(text: str, function: Any, *arguments: Any) -> None:
    with pytest.raises(MistifyError) as caught:
        function(*arguments)
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert text in str(caught.value)


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tf_keras = pytest.importorskip("tf_keras")
    path = tmp_path_factory.mktemp("saved") / "model"
    body = [tf_keras.layers.Input((4,)), tf_keras.layers.Dense(3, name="scores")]
    tf_keras.Sequential(body).save(path, save_format="tf")
    return path


def test_statistics_of_a_nested_model_are_loaded(tmp_path: Path) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    norm = tf_keras.layers.Normalization()
    values = np.random.default_rng(0).normal(50, 10, (20, 4)).astype(np.float32)
    norm.adapt(values)
    inner = tf_keras.Sequential([tf_keras.layers.Input((4,)), norm, tf_keras.layers.Dense(3)])
    old = tf_keras.Sequential([tf_keras.layers.Input((4,)), inner, tf_keras.layers.Dense(2)])
    old.save(tmp_path / "model", save_format="tf")
    loaded = load_keras(tmp_path / "model")
    np.testing.assert_allclose(np.asarray(loaded(values)), np.asarray(old(values)), atol=1e-5)


def test_the_graph_of_a_saved_model_is_not_read(saved_model: Path, tmp_path: Path) -> None:
    shutil.copytree(saved_model, tmp_path / "model")
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"PyFunc")
    expected, loaded = load_keras(saved_model), load_keras(tmp_path / "model")
    for before, after in zip(expected.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("keras_metadata.pb", b"\xff" * 100, "a keras_metadata.pb that is damaged"),
        ("keras_metadata.pb", b"", "expected a functional or sequential model"),
        ("variables/variables.index", b"", "a file that Keras cannot load"),
    ],
)
def test_a_damaged_saved_model_is_refused(
    saved_model: Path, tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    shutil.copytree(saved_model, tmp_path / "model")
    (tmp_path / "model" / name).write_bytes(content)
    refused(text, load_keras, tmp_path / "model")


def test_a_saved_model_with_code_is_refused(tmp_path: Path) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    body = [
        tf_keras.layers.Input((4,)),
        tf_keras.layers.Lambda(lambda x: x, name="own"),
        tf_keras.layers.Dense(3),
    ]
    tf_keras.Sequential(body).save(tmp_path / "model", save_format="tf")
    refused("layer 'own' is a Lambda: Python code", load_keras, tmp_path / "model")


@pytest.mark.slow
def test_an_architecture_given_by_name_is_reproducible() -> None:
    first, second = (load_application("MobileNetV2", 7, 32) for _ in range(2))
    assert (first.input_shape, first.output_shape) == ((None, 32, 32, 3), (None, 7))
    image = np.random.default_rng(0).uniform(-1, 1, (1, 32, 32, 3)).astype(np.float32)
    np.testing.assert_array_equal(first.predict(image, verbose=0), second.predict(image, verbose=0))


def test_an_architecture_loads_weights_from_a_file(tmp_path: Path) -> None:
    keras.utils.set_random_seed(5)
    trained = keras.applications.MobileNet(weights=None, classes=7, input_shape=(32, 32, 3))
    trained.save_weights(tmp_path / "trained.weights.h5")
    loaded = application("MobileNet", 7, 32, tmp_path / "trained.weights.h5")
    for before, after in zip(trained.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    refused("weights that do not fit", application, "MobileNet", 8, 32, tmp_path / "trained.weights.h5")


def test_too_small_an_image_is_refused() -> None:
    refused("Input size must be at least 75x75", application, "InceptionV3", 10, 32)


@pytest.mark.slow
@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_architecture_is_built_with_the_requested_classes(name: str) -> None:
    assert application(name, 5).output_shape == (None, 5)
    keras.backend.clear_session()


@pytest.fixture(scope="module")
def bert() -> Any:
    hub = pytest.importorskip("keras_hub")
    keras.utils.set_random_seed(1)
    return hub.models.BertBackbone(100, 2, 2, 16, 32, max_sequence_length=32)


def texts(length: int) -> dict[str, Any]:
    tokens = np.random.default_rng(0).integers(1, 100, (2, length))
    return {
        "token_ids": tokens, "segment_ids": np.zeros_like(tokens), "padding_mask": np.ones_like(tokens)
    }  # fmt: skip


def test_a_backbone_is_loaded_for_texts_of_a_fixed_length(bert: Any, tmp_path: Path) -> None:
    bert.save_to_preset(str(tmp_path / "bert"))
    loaded = load_preset(tmp_path / "bert", 16)
    assert {tensor.name: tuple(tensor.shape) for tensor in loaded.inputs} == dict.fromkeys(
        texts(16), (None, 16)
    )
    expected, outputs = bert(texts(16)), loaded(texts(16))
    for name in expected:
        np.testing.assert_allclose(np.asarray(outputs[name]), np.asarray(expected[name]), atol=1e-6)
    assert load_preset(tmp_path / "bert", 16, 3).output_shape == (None, 3)


def test_a_saved_task_is_loaded(bert: Any, tmp_path: Path) -> None:
    hub = pytest.importorskip("keras_hub")
    task = hub.models.BertTextClassifier(bert, num_classes=4)
    task.save_to_preset(str(tmp_path / "task"))
    loaded = load_preset(tmp_path / "task", 8)
    np.testing.assert_allclose(np.asarray(loaded(texts(8))), np.asarray(task(texts(8))), atol=1e-6)


def test_the_error_for_a_file_of_a_keras_hub_model_suggests_a_preset(bert: Any, tmp_path: Path) -> None:
    bert.save(tmp_path / "bert.keras")
    refused('"keras_hub/DIR?sequence=N"', load_keras, tmp_path / "bert.keras")


def test_a_preset_is_inspected_before_it_is_loaded(bert: Any, tmp_path: Path) -> None:
    bert.save_to_preset(str(tmp_path / "bert"))
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    (tmp_path / "bert" / "config.json").write_text(
        json.dumps({**config, "module": "os", "class_name": "system", "registered_name": None})
    )
    refused("is a system of os", load_keras, tmp_path / "bert")
