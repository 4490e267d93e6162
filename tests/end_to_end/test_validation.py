"""A job with contradictory validation and test data: the former drive decisions, the latter are reported."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.support.servers import MISTIFY

pytestmark = pytest.mark.slow

EXIT_UNMET = 11
ROUND, MOST = 10, 45


def digits(directory: Path, name: str, rows: slice, wrong: int) -> str:
    """Write some of the digits, with their own classes or wrong ones."""
    x, y = load_digits(return_X_y=True)
    images = x[rows].reshape(-1, 8, 8, 1).astype(np.float32) / 16
    np.savez(directory / name, x=images, y=(y[rows].astype(np.int64) + wrong) % 10)
    return name


@pytest.fixture(scope="module")
def goals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the goals of the job by the part of the data with wrong labels."""
    directory = tmp_path_factory.mktemp("disagreeing")
    train = digits(directory, "train.npz", slice(0, 1_200), 0)
    configs = [
        {
            "id": f"wrong-{part}",
            "model": "digits-resnet",
            "dataset": {
                "train": train,
                "validation": digits(
                    directory, f"{part}-validation.npz", slice(1_200, 1_500), part == "validation"
                ),
                "test": digits(directory, f"{part}-test.npz", slice(1_500, 1_797), part == "test"),
            },
            "adaptation_goal": {"FLOP": "0.8x", "accuracy": "0.8"},
            "algorithm": {
                "name": "morphnet",
                "config": {
                    "source_steps": 0,
                    "adapt_steps": 5,
                    "cuts": 1,
                    "tune_steps": ROUND,
                    "max_steps": MOST,
                },
            },
        }
        for part in ("validation", "test")
    ]
    config = directory / "goals.json"
    config.write_text(json.dumps(configs))
    command = [MISTIFY, "port", config, "--out", directory / "out", "--data-root", directory]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == EXIT_UNMET, done.stdout + done.stderr
    report = json.loads((directory / "out" / "report.json").read_text())
    return {goal["id"]: goal for goal in report["goals"]}


def test_the_validation_data_determines_how_long_a_network_is_tuned(goals: dict[str, dict[str, Any]]) -> None:
    assert goals["wrong-test"]["steps"] <= 5 + ROUND
    assert goals["wrong-validation"]["steps"] == MOST


def test_the_test_data_determines_whether_a_goal_is_met(goals: dict[str, dict[str, Any]]) -> None:
    assert goals["wrong-validation"]["met"]
    assert goals["wrong-validation"]["achieved"]["accuracy"] > 0.8
    assert not goals["wrong-test"]["met"]
    assert goals["wrong-test"]["achieved"]["accuracy"] < 0.2
    assert "on the test data" in goals["wrong-test"]["reason"]
