"""Other kinds of models from the config to the device: a TF-Hub handle, and a network with two outputs."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.readers.builtin import read_builtin
from mistify_client import load
from tests.support.paths import REPOSITORY
from tests.support.saved_models import save_digits

MISTIFY = [sys.executable, "-c", "from mistify_client.cli.main import app; app()"]
HANDLE = "https://tfhub.dev/somebody/digits/1"
KAGGLE = "https://www.kaggle.com/models/somebody/digits/tensorFlow2/small/1"
DIGITS = {"train": "builtin:digits-train", "test": "builtin:digits-test"}
SETTINGS = {"source_steps": 20, "adapt_steps": 16, "cuts": 2, "tune_steps": 40, "max_steps": 80}


def port(base: Path, goals: list[dict[str, Any]], **environment: str) -> subprocess.CompletedProcess[str]:
    """Port with an embedded server whose data root is a directory."""
    (base / "goals.json").write_text(json.dumps(goals))
    command = [*MISTIFY, "port", "goals.json", "--out", "out", "--data-root", str(base)]
    # The code under test, wherever the command runs.
    path = str(REPOSITORY)
    return subprocess.run(
        command, cwd=base, env={**os.environ, "PYTHONPATH": path, **environment}, capture_output=True,
        text=True, check=False, timeout=280,
    )  # fmt: skip


def goals_in(base: Path) -> dict[str, Any]:
    report = json.loads((base / "out" / "report.json").read_text())
    return {goal["id"]: goal for goal in report["goals"]}


@pytest.mark.slow
def test_a_handle_is_read_from_the_cache_of_tensorflow_hub_and_packaged_in_int8(tmp_path: Path) -> None:
    """It has no Keras structure: a goal that would require cutting it is refused with its place."""
    directory = hashlib.sha1(HANDLE.encode(), usedforsecurity=False).hexdigest()
    module = save_digits(tmp_path / "cache" / directory)
    environment = {"TFHUB_CACHE_DIR": str(tmp_path / "cache")}
    fits = {"model": HANDLE, "dataset": DIGITS, "adaptation_goal": {"FLOP": "1x", "accuracy": "0.9"}}
    done = port(
        tmp_path, [{"id": "float", **fits}, {"id": "int8", "quantization": "int8", **fits}], **environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: goal["met"] for name, goal in goals_in(tmp_path).items()} == {"float": True, "int8": True}
    images = read_builtin("builtin:digits-test")["x"][:50]
    expected = module.serve(tf.constant(images))["digit"].numpy()
    np.testing.assert_allclose(load(tmp_path / "out/goals/float")(images), expected, atol=1e-5)
    np.testing.assert_allclose(load(tmp_path / "out/goals/int8")(images), expected, atol=0.3)
    half = {"id": "half", "model": HANDLE, "dataset": DIGITS, "adaptation_goal": {"FLOP": "0.5x"}}
    refused = port(tmp_path, [half], **environment)
    reported = " ".join((refused.stdout + refused.stderr).split())
    assert refused.returncode not in (0, 11)
    assert "[0].adaptation_goal.FLOP" in reported
    assert "no Keras structure, so it can only be quantized and packaged, not adapted" in reported


@pytest.mark.slow
def test_a_kaggle_model_is_read_from_the_cache_of_kagglehub(tmp_path: Path) -> None:
    save_digits(tmp_path / "cache/models/somebody/digits/tensorFlow2/small/1")
    goal = {"id": "a", "model": KAGGLE, "dataset": DIGITS, "adaptation_goal": {"FLOP": "1x"}}
    done = port(tmp_path, [goal], KAGGLEHUB_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out/goals/a/serve.tflite").is_file()


@pytest.fixture(scope="module")
def two_outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Port a network that predicts a class and a number from one input to half of its multiply-adds."""
    base = tmp_path_factory.mktemp("two-outputs")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    inputs = keras.Input((12,), name="reading")
    x = layers.Dense(32, "relu")(layers.Dense(32, "relu")(inputs))
    outputs = [layers.Dense(3, "softmax", name="kind")(x), layers.Dense(1, name="amount")(x)]
    model = keras.Model(inputs, outputs)
    x = np.random.default_rng(0).normal(size=(600, 12)).astype(np.float32)
    kind, amount = x[:, :3].argmax(axis=1), x[:, 3:6].sum(axis=1)
    model.compile("adam", ["sparse_categorical_crossentropy", "mse"])
    model.fit(x, [kind, amount], epochs=10, verbose=0)
    model.save(base / "two.keras")
    for name, rows in (("train", slice(0, 500)), ("test", slice(500, 600))):
        np.savez(base / f"{name}.npz", reading=x[rows], kind=kind[rows], amount=amount[rows])
    goal = {
        "id": "half",
        "model": "two.keras",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "algorithm": {"name": "morphnet", "config": SETTINGS},
        "adaptation_goal": {"FLOP": "0.5x"},
    }
    done = port(base, [goal])
    assert done.returncode == 0, done.stdout + done.stderr
    return base


def test_a_model_with_two_outputs_is_ported_with_their_names(two_outputs: Path) -> None:
    model = load(two_outputs / "out/goals/half")
    test = np.load(two_outputs / "test.npz")
    predicted = model(test["reading"])
    assert set(predicted) == {"kind", "amount"}
    assert (predicted["kind"].shape, predicted["amount"].shape) == ((100, 3), (100, 1))
    np.testing.assert_allclose(predicted["kind"].sum(axis=1), 1, atol=1e-5)
    assert (predicted["kind"].argmax(axis=1) == test["kind"]).mean() > 0.6
    assert np.corrcoef(predicted["amount"][:, 0], test["amount"])[0, 1] > 0.8


def test_each_output_is_close_to_that_of_the_source(two_outputs: Path) -> None:
    """Outputs are compared by name: if they were swapped, neither would resemble the source's."""
    reading = np.load(two_outputs / "test.npz")["reading"]
    kind, amount = keras.models.load_model(two_outputs / "two.keras").predict(reading, verbose=0)
    predicted = load(two_outputs / "out/goals/half")(reading)
    assert (predicted["kind"].argmax(axis=1) == kind.argmax(axis=1)).mean() > 0.6
    assert np.corrcoef(predicted["amount"][:, 0], amount[:, 0])[0, 1] > 0.8
    assert goals_in(two_outputs)["half"]["met"]
