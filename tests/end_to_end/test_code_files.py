"""A loss and a metric from the user's files: used, uploaded, and refused by servers without consent."""

import json
import subprocess
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from mistify_client import load
from tests.support.plug_ins import environment
from tests.support.servers import MISTIFY, server

QUICK = {"source_steps": 150, "adapt_steps": 10, "cuts": 1, "tune_steps": 150, "distillation": 0}

LOSSES = """
import tensorflow as tf

def doubled(predictions, targets, counts):
    return tf.reduce_mean(counts * tf.square(predictions - 2 * targets))
"""

METRICS = """
import numpy as np

def doubling_error(predictions, targets):
    return float(np.mean(np.abs(predictions - 2 * targets)))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a network that predicts the sum of two coordinates, data, and a goal with a loss and a metric."""
    base = tmp_path_factory.mktemp("code")
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), name="x")
    hidden = keras.layers.Dense(32, "relu")(inputs)
    keras.Model(inputs, keras.layers.Dense(1, name="price")(hidden)).save(base / "sum.keras")
    for part, (seed, count) in {"train": (0, 800), "test": (1, 300)}.items():
        x = np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)
        np.savez(base / f"{part}.npz", x=x, price=x.sum(1, keepdims=True))
    (base / "losses.py").write_text(LOSSES)
    (base / "scores.py").write_text(METRICS)
    goal = {
        "id": "half",
        "model": "sum.keras",
        "dataset": {
            "train": "train.npz",
            "test": "test.npz",
            "losses": {"price": "losses.py:doubled"},
            "metrics": {"price": "scores.py:doubling_error"},
        },
        "algorithm": {"name": "morphnet", "config": QUICK},
        "adaptation_goal": {"FLOP": "0.5x"},
    }
    (base / "goals.json").write_text(json.dumps([goal]))
    return base


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MISTIFY, *arguments], capture_output=True, text=True, env=environment(), check=False
    )


@pytest.mark.slow
def test_networks_are_trained_with_a_loss_and_scored_by_a_metric_from_files(site: Path) -> None:
    done = run("port", site / "goals.json", "--out", site / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    test = np.load(site / "test.npz")
    predicted: Any = load(site / "out" / "goals" / "half")(test["x"])
    slope = float(np.sum(predicted * test["price"]) / np.sum(np.square(test["price"])))
    assert slope == pytest.approx(2.0, abs=0.3)  # 1 with the default loss
    (goal,) = json.loads((site / "out" / "report.json").read_text())["goals"]
    (score,) = goal["outputs"]
    error = float(np.mean(np.abs(predicted - 2 * test["price"])))
    assert (score["output"], score["metric"]) == ("price", "doubling_error")
    assert score["value"] == pytest.approx(error, rel=1e-3)


@pytest.mark.slow
def test_a_server_runs_code_of_its_clients_only_if_its_operator_allows_it(site: Path) -> None:
    with server(site / "store") as (address, _):
        refused = run("plan", site / "goals.json", "--server", address)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    places = [line.strip().partition(": ")[0] for line in refused.stderr.splitlines() if line[:3] == "  ["]
    assert places == ["[0].dataset.metrics.price", "[0].dataset.losses.price"]
    for expected in ('got "losses.py:doubled"', "mistify.losses", "mistify.metrics", "--allow-code"):
        assert expected in refused.stderr
    with server(site / "other", "--allow-code") as (address, _):
        planned = run("plan", site / "goals.json", "--json", "--server", address)
    assert planned.returncode == 0, planned.stderr
    (source,) = json.loads(planned.stdout)["batches"][0]["source_outputs"]
    assert source["metric"] == "doubling_error"
