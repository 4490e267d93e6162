"""Targets for outputs, one in the metric of a plug-in that only the server has."""

import json
import subprocess
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from mistify.errors import MistifyError
from mistify_client.rpc.porting import PortingClient
from tests.support.plug_ins import METRICS, environment, install_example
from tests.support.servers import MISTIFY, server

pytestmark = pytest.mark.slow

QUICK = {"source_steps": 30, "adapt_steps": 10, "cuts": 2, "tune_steps": 30, "max_steps": 100}

TARGETS: dict[str, dict[str, float]] = {
    "easy": {"kind": 0.6, "price": 1.0},
    "dear": {"kind": 0.6, "price": 1e-6},
}


def config(name: str, accuracy: object) -> dict[str, Any]:
    data = {"train": "train.npz", "test": "test.npz", "metrics": {"price": "pinball_error"}}
    return {
        "id": name,
        "model": "two.keras",
        "dataset": data,
        "algorithm": {"name": "morphnet", "config": QUICK},
        "adaptation_goal": {"FLOP": "0.6x" if name == "easy" else "0.5x", "accuracy": accuracy},
    }


def write_site(base: Path) -> None:
    """Write a network that predicts the half plane of a point and the sum of its coordinates, and data."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), name="x")
    hidden = keras.layers.Dense(32, "relu")(inputs)
    outputs = [
        keras.layers.Dense(2, "softmax", name="kind")(hidden),
        keras.layers.Dense(1, name="price")(hidden),
    ]
    keras.Model(inputs, outputs).save(base / "two.keras")
    for part, (seed, count) in {"train": (0, 800), "test": (1, 300)}.items():
        x = np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)
        np.savez(
            base / f"{part}.npz", x=x, kind=(x[:, 0] > 0).astype(np.int64), price=x.sum(1, keepdims=True)
        )


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MISTIFY, *arguments], capture_output=True, text=True, env=environment(), check=False
    )


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], Path, str]:
    base = tmp_path_factory.mktemp("scores")
    write_site(base)
    goals = base / "goals.json"
    goals.write_text(json.dumps([config(name, accuracy) for name, accuracy in TARGETS.items()]))
    site = install_example(base / "site", "metrics", METRICS)
    with server(base / "store", "--data-root", base, environment=environment(site)) as (address, _):
        done = run("port", goals, "--out", base / "out", "--server", address)
        planned = run("plan", goals, "--json", "--server", address)
        with PortingClient(address) as client, pytest.raises(MistifyError) as caught:
            client.submit(json.dumps([config("a", {"prize": 1, "kind": 80})]), "")
    assert done.returncode == 11, done.stdout + done.stderr
    report = json.loads((base / "out" / "report.json").read_text())
    return report, json.loads(planned.stdout), base / "out", str(caught.value)


def test_a_goal_is_met_if_each_output_reaches_its_target(ported: Any) -> None:
    report, _, out, _ = ported
    goals = {goal["id"]: goal for goal in report["goals"]}
    assert {name: goal["met"] for name, goal in goals.items()} == {"easy": True, "dear": False}
    scores = {score["output"]: score for score in goals["dear"]["outputs"]}
    assert [scores["kind"]["metric"], scores["price"]["metric"]] == ["accuracy", "pinball_error"]
    figure = f"price: pinball_error {scores['price']['value']:.4f} above 0.0000 on the test data"
    assert goals["dear"]["reason"].startswith(figure)
    assert (goals["dear"]["steps"], goals["easy"]["steps"] < 100) == (100, True)
    manifest = json.loads((out / "goals" / "easy" / "manifest.json").read_text())
    assert {"output": "price", "metric": "pinball_error", "value": 1.0} in manifest["targets"]


def test_a_plan_predicts_each_output(ported: Any) -> None:
    _, planned, _, _ = ported
    (batch,) = planned["batches"]
    edges = {edge["goals"][0]: edge for edge in batch["edges"]}
    for edge in edges.values():
        assert [(one["output"], one["metric"]) for one in edge["outputs"]] == [
            ("kind", "accuracy"),
            ("price", "pinball_error"),
        ]
    assert edges["dear"]["warning"].startswith("price: pinball_error 1e-06 is likely to be missed")


def test_unknown_outputs_and_impossible_targets_are_refused_with_their_places(ported: Any) -> None:
    *_, refused = ported
    assert '[0].adaptation_goal.accuracy.prize: got "prize"; expected one of kind, price' in refused
    assert "[0].adaptation_goal.accuracy.kind: got 80.0; expected accuracy, a share" in refused
