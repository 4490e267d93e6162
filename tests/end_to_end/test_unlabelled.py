"""A job on unlabelled inputs: planned, ported, and reported as agreement."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.support.servers import MISTIFY


@pytest.mark.slow
def test_a_job_on_unlabelled_inputs_is_scored_by_agreement_with_the_source(tmp_path: Path) -> None:
    images = load_digits().images[:400, ..., None].astype(np.float32) / 16
    np.savez(tmp_path / "photos.npz", x=images)
    settings = {"adapt_steps": 10, "cuts": 2, "tune_steps": 40, "max_steps": 60}
    config = {
        "id": "half",
        "model": "digits-resnet",
        "dataset": {"unlabelled": "photos.npz"},
        "adaptation_goal": {"FLOP": "0.5x", "accuracy": "0.3"},
        "algorithm": {"name": "morphnet", "config": settings},
    }
    (tmp_path / "goals.json").write_text(json.dumps([config]))

    def run(command: str, *options: str | Path) -> str:
        parts = [MISTIFY, command, tmp_path / "goals.json", "--data-root", tmp_path, *options]
        done = subprocess.run(parts, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "agreement" in run("plan")
    run("port", "--out", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (goal,) = report["goals"]
    assert goal["met"]
    assert goal["achieved"]["metric"] == report["source"]["metric"] == "agreement"
    assert report["source"]["accuracy"] == 1.0
    assert {output["metric"] for output in goal["outputs"]} == {"agreement", "balanced_agreement"}
    assert "your unlabelled inputs" in goal["note"]
    manifest = json.loads((tmp_path / "out" / "goals" / "half" / "manifest.json").read_text())
    assert (manifest["metric"], manifest["accuracy_examples"]) == ("agreement", 40)
