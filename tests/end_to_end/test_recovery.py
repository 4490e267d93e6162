"""One job from the config to the packages, with real processes and a server that is killed midway."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.readers.loading import load_dataset
from executors.sources.keras.loading import flatten
from executors.structure import analyse
from executors.structure.signature import signature_of
from mistify.costs.budget import FLOPS
from mistify.jobs.plan import Plan
from mistify_client import load
from mistify_client.rpc.porting import PortingClient
from mistify_server.store.directory import open_store
from mistify_server.store.plans import BatchState
from tests.support.compiled_models import assert_runs_compiled
from tests.support.servers import MISTIFY, server

EXIT_UNMET = 11
SETTINGS = {"source_steps": 20, "adapt_steps": 16, "cuts": 2, "tune_steps": 10, "max_steps": 40}
GOALS: dict[str, dict[str, str]] = {
    "wider": {"FLOP": "1.5x"},
    "half": {"FLOP": "0.5x"},
    "half-again": {"FLOP": "0.5x"},
    "few-params": {"num_of_params": "0.4x", "FLOP": "0.4x"},
    "perfect": {"FLOP": "0.05x", "accuracy": "1.0"},
}
MET = [name for name in GOALS if name != "perfect"]


@dataclass(frozen=True)
class Killed:
    """A job whose server was killed once, with the content of the store then and at the end."""

    out: Path
    store: Path
    report: dict[str, Any]
    exit_code: int
    output: str
    met_before: list[str]
    digests_before: dict[str, str]
    before: BatchState
    after: BatchState
    added: Path
    plan: Plan

    def goal(self, name: str) -> dict[str, Any]:
        actual: dict[str, Any] = next(goal for goal in self.report["goals"] if goal["id"] == name)
        return actual

    def digest(self, name: str) -> str:
        manifest = json.loads((self.out / "goals" / name / "manifest.json").read_text())
        return str(manifest["files"]["serve.tflite"]["sha256"])


@contextmanager
def port(config: Path, out: Path, address: str) -> Iterator[subprocess.Popen[str]]:
    command = [MISTIFY, "port", config, "--out", out, "--server", address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def planned(address: str, config: Path) -> Iterator[Plan]:
    with PortingClient(address) as client:
        yield client.plan(config.read_text())


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Return the command's output up to the first line that contains this text."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError("".join(lines))


def state_of(store: Path, job_id: str) -> BatchState:
    with open_store(store) as opened:
        (state,) = opened.jobs.batches(job_id)
    return state


def digests_in(store: Path, job_id: str) -> dict[str, str]:
    """Return the digests of all networks packaged so far, by goal."""
    with open_store(store) as opened:
        goals = opened.jobs.job(job_id).goals
    return {goal.id: file.sha256 for goal in goals for file in goal.files if file.name == "serve.tflite"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    base = tmp_path_factory.mktemp("end-to-end")
    config, out, store = base / "goals.json", base / "out", base / "store"
    data = {"train": "builtin:digits-train", "test": "builtin:digits-test"}
    common = {"model": "digits-resnet", "dataset": data}
    common |= {"algorithm": {"name": "MorphNet", "config": SETTINGS}}
    config.write_text(
        json.dumps([{"id": name, "adaptation_goal": goal, **common} for name, goal in GOALS.items()])
    )
    with (
        server(store) as (address, first),
        planned(address, config) as plan,
        port(config, out, address) as command,
    ):
        output = lines_until(command, ": met, ")
        first.send_signal(signal.SIGKILL)
        first.wait()
        job_id = next(line.split()[1].rstrip(",") for line in output if line.startswith("job "))
        before, digests = state_of(store, job_id), digests_in(store, job_id)
        with server(store, listen=address):
            rest, _ = command.communicate()
            after = state_of(store, job_id)
            integers = {"quantization": {"precision": "int8", "inputs": "int8"}}
            added = {"id": "added", "adaptation_goal": {"FLOP": "0.3x"}, **integers}
            config.write_text(json.dumps([added]))
            add = [MISTIFY, "add", job_id, config, "--out", base / "added", "--server", address]
            subprocess.run(add, check=True, capture_output=True)
    return Killed(
        out=out,
        store=store,
        report=json.loads((out / "report.json").read_text()),
        exit_code=command.returncode,
        output="".join(output) + rest,
        met_before=[line.split(":")[0] for line in output if ": met, " in line],
        digests_before=digests,
        before=before,
        after=after,
        added=base / "added",
        plan=plan,
    )


@pytest.fixture(scope="module")
def test_data(digits_resnet: keras.Model) -> Dataset:
    return load_dataset("builtin:digits-test", signature_of(digits_resnet))


@pytest.fixture(scope="module")
def source_flops(digits_resnet: keras.Model) -> float:
    return analyse(flatten("digits-resnet", digits_resnet)).network().flops


def test_all_goals_are_completed_after_a_kill(killed: Killed) -> None:
    assert len(killed.met_before) == 1
    assert [goal["id"] for goal in killed.report["goals"]] == list(GOALS)
    assert [goal["id"] for goal in killed.report["goals"] if goal["met"]] == MET, killed.output
    for name in GOALS:
        assert {"serve.tflite", "manifest.json", "signature.json"} == {
            path.name for path in (killed.out / "goals" / name).iterdir()
        }
    page = (killed.out / "report.html").read_text()
    assert re.findall(r'<tbody id="goal-([^"]+)"', page) == list(GOALS)


def test_files_in_the_store_are_not_accessible_to_other_users(killed: Killed) -> None:
    paths = [killed.store, *killed.store.rglob("*")]
    assert {"mistify.db", "logs", "artifacts"} <= {path.name for path in paths}
    assert [path for path in paths if path.stat().st_mode & 0o077] == []


def test_completed_steps_are_not_repeated(killed: Killed) -> None:
    assert killed.before.root is not None
    assert killed.after.root == killed.before.root
    done = killed.before.checkpoints
    assert 0 < len(done) < len(killed.after.checkpoints)
    assert {node: killed.after.checkpoints[node] for node in done} == done
    assert set(killed.met_before) <= set(killed.digests_before)
    assert {name: killed.digest(name) for name in killed.digests_before} == killed.digests_before


def test_the_report_has_exactly_the_documented_shape(killed: Killed) -> None:
    report = killed.report
    about = ["job", "name", "tags", "submitted_by", "created_unix_ms", "state", "reason"]
    assert list(report) == [*about, "seconds", "spent", "source", "sources", "metrics", "goals"]
    shown = ["flops", "params", "memory_bytes", "size_bytes", "accuracy", "tuned_accuracy"]
    names = ["batch", "model", *shown[:4], "energy_mj", "measured_latency_ms", *shown[4:], "metric"]
    names += ["outputs", "tuned_outputs", "steps", "preparing_steps"]
    assert list(report["source"]) == names
    assert report["sources"] == [report["source"]]
    assert all(report["source"][figure] > 0 for figure in shown)
    assert report["source"]["measured_latency_ms"]["1"] > 0
    assert report["source"]["metric"] == "accuracy"
    activities = {"loading", "tracing", "training", "measuring", "saving", "packaging", "waiting", "other"}
    assert activities <= set(report["spent"])
    assert all(seconds > 0 for seconds in report["spent"].values())
    assert sum(report["spent"].values()) <= report["seconds"]
    figures = ["flops", "params", "memory_bytes", "size_bytes", "energy_mj", "latency_ms"]
    figures += ["measured_latency_ms", "speedup", "measured_speedup", "accuracy"]
    asked = ["id", "batch", "parent", "algorithm", "choice", "warning"]
    asked += ["quantization", "precision_choice", "compression", "exits", "task", "hardware", "threads"]
    asked += ["latency_judged_by", "budget", "targets"]
    for goal in report["goals"]:
        ended = ["achieved", "outputs", "branches", "state", "met", "reason", "note", "seconds", "steps"]
        assert list(goal) == [*asked, *ended]
        assert goal["outputs"] == [
            {"output": "digit", "metric": "accuracy", "value": goal["achieved"]["accuracy"]}
        ]
        assert (goal["algorithm"], goal["choice"]) == ("morphnet", "the config names it")
        assert (goal["quantization"]["precision"], goal["hardware"]) == ("none", "host")
        assert not goal["note"] or goal["note"].startswith("lost ")
        assert list(goal["achieved"]) == [*figures, "accuracy_change", "metric"]
        change = goal["achieved"]["accuracy"] - report["source"]["tuned_accuracy"]
        assert goal["achieved"]["accuracy_change"] == pytest.approx(change)
        assert all(goal["achieved"][figure] > 0 for figure in figures)
        assert all(goal["achieved"][axis] <= limit for axis, limit in goal["budget"].items())
        assert goal["steps"] > 0
        assert 0 < goal["seconds"] <= report["seconds"]


def test_the_results_are_close_to_the_plan(killed: Killed) -> None:
    (batch,) = killed.plan.batches
    assert [edge.goals for edge in batch.edges] == [node.goals for node in killed.before.plan.nodes]
    assert killed.after.root is not None
    assert batch.source_accuracy is not None
    assert batch.source_accuracy.holds(killed.after.root.teacher_accuracy)
    for edge, node in zip(batch.edges, killed.after.plan.nodes, strict=False):
        made = killed.after.checkpoints[node.index]
        assert edge.accuracy is not None
        assert edge.accuracy.holds(made.accuracy)
        assert 0.5 < made.costs[FLOPS] / edge.costs[FLOPS] < 1.05
        assert edge.steps == pytest.approx(made.steps, abs=10)
        assert edge.seconds > 0


@pytest.mark.parametrize("name", GOALS)
def test_a_package_has_the_stated_accuracy(killed: Killed, test_data: Dataset, name: str) -> None:
    package = load(killed.out / "goals" / name)
    outputs = package(test_data.inputs["image"])
    assert isinstance(outputs, np.ndarray)
    assert outputs.shape == (359, 10)
    actual = float(np.mean(outputs.argmax(axis=1) == test_data.targets["digit"]))
    assert actual == pytest.approx(package.manifest.accuracy, abs=1e-6)
    assert actual == pytest.approx(killed.goal(name)["achieved"]["accuracy"], abs=1e-6)


@pytest.mark.parametrize("name", GOALS)
def test_a_package_gives_the_outputs_of_its_checkpoint(killed: Killed, test_data: Dataset, name: str) -> None:
    (node,) = (node.index for node in killed.after.plan.nodes if name in node.goals)
    with open_store(killed.store) as opened:
        path = opened.artifacts.path(killed.after.checkpoints[node].checkpoint)
    expected = keras.models.load_model(path, compile=False).predict(test_data.inputs["image"][:7], verbose=0)
    package = load(killed.out / "goals" / name)
    np.testing.assert_allclose(package(test_data.inputs["image"][:7]), expected, atol=1e-4)
    one_by_one = np.concatenate([np.asarray(package(test_data.inputs["image"][i : i + 1])) for i in range(7)])
    np.testing.assert_allclose(one_by_one, package(test_data.inputs["image"][:7]), atol=1e-5)


@pytest.mark.parametrize("name", MET)
def test_a_float32_package_runs_in_the_runtime_for_accelerators(killed: Killed, name: str) -> None:
    assert_runs_compiled((killed.out / "goals" / name / "serve.tflite").read_bytes())


def test_an_int8_package_runs_in_the_runtime_for_accelerators(killed: Killed) -> None:
    assert_runs_compiled((killed.added / "goals" / "added" / "serve.tflite").read_bytes())


def test_an_added_goal_is_adapted_from_its_nearest_looser_one(killed: Killed, test_data: Dataset) -> None:
    report = json.loads((killed.added / "report.json").read_text())
    *others, added = report["goals"]
    assert others == killed.report["goals"]
    assert all(seconds >= killed.report["spent"][name] for name, seconds in report["spent"].items())
    assert (added["id"], added["parent"], added["met"]) == ("added", "half", True)
    package = load(killed.added / "goals" / "added")
    assert (package.manifest.quantization, package.inputs[0].dtype) == ("int8", "int8")
    assert package.manifest.accuracy_examples == 359
    actual = float(
        np.mean(np.asarray(package(test_data.inputs["image"])).argmax(axis=1) == test_data.targets["digit"])
    )
    assert actual == pytest.approx(added["achieved"]["accuracy"], abs=1e-6)


def test_a_goal_larger_than_the_source_is_at_least_as_accurate_as_the_source(
    killed: Killed, source_flops: float
) -> None:
    """The source itself is served unless the expanded network is better, as here after so few steps."""
    wider = killed.goal("wider")
    assert killed.report["source"]["flops"] == source_flops
    assert source_flops <= wider["achieved"]["flops"] <= 1.5 * source_flops
    assert wider["steps"] > 0


def test_an_accuracy_out_of_reach_is_unmet_with_a_package_and_a_reason(killed: Killed) -> None:
    perfect = killed.goal("perfect")
    assert killed.exit_code == EXIT_UNMET
    assert not perfect["met"]
    assert perfect["reason"].startswith("accuracy 0.")
    assert "below 1.0000 on the test data" in perfect["reason"]
    assert "below 1.0000 on the validation data after 40 steps" in perfect["reason"]
    assert f"perfect is unmet: {perfect['reason']}" in killed.output
    assert perfect["achieved"][FLOPS] <= 0.05 * killed.report["source"][FLOPS]


def test_equal_budgets_share_a_checkpoint_but_not_a_package(killed: Killed) -> None:
    half, again = killed.goal("half"), killed.goal("half-again")
    for figure in ("parent", "budget", "seconds", "steps", "met"):
        assert half[figure] == again[figure]
    assert [node.goals for node in killed.after.plan.nodes if "half" in node.goals] == [
        ("half", "half-again")
    ]
    names = [load(killed.out / "goals" / name).manifest.goal for name in ("half", "half-again")]
    assert names == ["half", "half-again"]
    assert killed.digest("half") == killed.digest("half-again")
