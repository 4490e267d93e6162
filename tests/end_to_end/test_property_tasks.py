"""Questions about images: data with answers, a package for each question, and one that was never trained."""

import json
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest

from mistify.package.manifest import Manifest
from tests.support.servers import MISTIFY

layers = keras.layers

WHERE = {"left": np.s_[:, :, :4], "right": np.s_[:, :, 4:], "top": np.s_[:, :4], "bottom": np.s_[:, 4:]}
SPACE = {
    "properties": {"what": ["bright", "dark"], "where": [*WHERE]},
    "names": {"side": ["left", "right"]},
    "tasks": {f"{what}-{where}": [what, where] for what in ("bright", "dark") for where in (*WHERE, "side")},
}
COMMON = {
    "model": "net.keras",
    "dataset": {"train": "train.npz", "test": "test.npz", "tasks": "tasks.json"},
    "algorithm": {"name": "nnfactory", "config": {"answer_steps": 64, "gate_steps": 64}},
}


def write_data(path: Path, count: int, seed: int) -> None:
    """Write images, and whether a part of each is bright or dark; a third of the answers are unknown."""
    rng = np.random.default_rng(seed)
    images = rng.normal(size=(count, 8, 8, 1)) + rng.normal(size=(count, 1, 8, 1))
    means = {name: images[part].mean(axis=(1, 2, 3)) for name, part in WHERE.items()}
    means["side"] = np.maximum(means["left"], means["right"])
    answers = [(means[where] > 0) == (what == "bright") for what, where in SPACE["tasks"].values()]
    known = rng.random((count, len(answers))) > 1 / 3
    np.savez(path, x=images.astype(np.float32), y=np.where(known, np.stack(answers, axis=1), -1))


def write_network(path: Path) -> None:
    keras.utils.set_random_seed(0)
    inputs = x = keras.Input((8, 8, 1))
    for width in (16, 24):
        x = layers.Conv2D(width, 3, activation="relu")(x)
    x = layers.Dense(32, activation="relu")(layers.Flatten()(x))
    keras.Model(inputs, layers.Dense(1)(x)).save(path)


def run(directory: Path, *command: str) -> str:
    place = ("--out", "out", "--store", "store")
    done = subprocess.run(
        [MISTIFY, *command, *place], cwd=directory, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_each_question_has_a_package_and_others_can_be_added(tmp_path: Path) -> None:
    write_network(tmp_path / "net.keras")
    write_data(tmp_path / "train.npz", 900, 0)
    write_data(tmp_path / "test.npz", 300, 1)
    (tmp_path / "tasks.json").write_text(json.dumps(SPACE))
    tasks = ["dark-side", ["bright", "top"]]
    goals = {
        "defaults": COMMON | {"id": "{task}", "tasks": tasks},
        "goals": [{"adaptation_goal": {"FLOP": "1x"}}],
    }
    (tmp_path / "goals.json").write_text(json.dumps(goals))
    assert "dark, side" in run(tmp_path, "port", "goals.json")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["source"]["preparing_steps"] == {"nnfactory": 128}
    assert (report["source"]["accuracy"], report["source"]["tuned_accuracy"]) == (None, None)
    assert report["source"]["measured_latency_ms"]
    assert {goal["id"]: goal["task"] for goal in report["goals"]} == {
        "dark-side": ["dark", "side"],
        "bright-top": ["bright", "top"],
    }
    with np.load(tmp_path / "test.npz") as test:
        columns = dict(zip(SPACE["tasks"], test["y"].T, strict=True))
    for name in ("dark-side", "bright-top"):
        manifest = Manifest.load(tmp_path / "out" / "goals" / name)
        assert manifest.accuracy_examples == np.count_nonzero(columns[name] >= 0)
        assert (manifest.metric, manifest.outputs[0].shape) == ("balanced_accuracy", (-1, 1))
        assert manifest.accuracy > 0.55
    added = [{"id": "never", "task": ["bright", "top", "bottom"], "adaptation_goal": {"FLOP": "1x"}}]
    (tmp_path / "more.json").write_text(json.dumps(added))
    assert "never trained" in run(tmp_path, "add", report["job"], "more.json")
    manifest = Manifest.load(tmp_path / "out" / "goals" / "never")
    assert (str(manifest.task), manifest.metric) == ("bright, top, bottom", "balanced_agreement")
    goal = json.loads((tmp_path / "out" / "report.json").read_text())["goals"][-1]
    assert goal["achieved"]["metric"] == "balanced_agreement"
    assert goal["note"].startswith(
        'never trained: "bright, top, bottom"; the nearest trained tasks are bright, top'
    )
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["source"]["preparing_steps"] == {"nnfactory": 128}
