"""Goals of some of a classifier's classes, from a config to what a device runs."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from mistify.package.manifest import Manifest
from mistify_client import load
from tests.support.servers import MISTIFY

CLASSES = [3, 5, 8]


def images_of_the_classes() -> tuple[np.ndarray, np.ndarray]:
    """The test images of the classes, and their places among these."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))[: len(digits.target) // 5]
    rows = order[np.isin(digits.target[order], CLASSES)]
    images = (digits.images[rows, ..., None] / 16).astype(np.float32)
    return images, np.searchsorted(CLASSES, digits.target[rows])


@pytest.mark.slow
def test_packages_know_the_classes_of_their_task_and_no_others(tmp_path: Path) -> None:
    settings = {"source_steps": 60, "adapt_steps": 30, "cuts": 2, "tune_steps": 40, "max_steps": 120}
    config = {
        "defaults": {
            "model": "digits-resnet",
            "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
            "task": {"classes": ["8", "3", "5"]},
            "adaptation_goal": {"FLOP": "0.5x", "accuracy": "0.8"},
        },
        "goals": [
            {"id": name, "algorithm": {"name": name, "config": settings}} for name in ("morphnet", "uniform")
        ],
    }
    (tmp_path / "goals.json").write_text(json.dumps(config))
    command = [MISTIFY, "port", tmp_path / "goals.json", "--out", tmp_path / "out"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "classes 3, 5, 8" in done.stdout
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    images, places = images_of_the_classes()
    for goal in report["goals"]:
        assert (goal["task"], goal["met"]) == ({"classes": ["3", "5", "8"]}, True)
        assert goal["achieved"]["accuracy_change"] is None
        package = tmp_path / "out" / "goals" / goal["id"]
        manifest = Manifest.load(package)
        assert [*manifest.labels.values()] == [("3", "5", "8")]
        assert manifest.accuracy_examples == len(images)
        outputs = np.asarray(load(package)(images))
        assert outputs.shape == (len(images), 3)
        accuracy = float(np.mean(outputs.argmax(axis=1) == places))
        assert accuracy == pytest.approx(manifest.accuracy, abs=0.01)
        assert accuracy >= 0.8
