"""A target that no branch meets leads to a new package in a running app; all processes are real."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mistify.costs.budget import memory_axis
from mistify.package.manifest import Manifest
from mistify_client import load
from mistify_client.rpc.porting import PortingClient
from tests.end_to_end.test_recovery import SETTINGS
from tests.support.servers import MISTIFY, server

DEADLINE_SECONDS = 300.0
COMMON = {
    "model": "digits-resnet",
    "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
    "algorithm": {"name": "MorphNet", "config": SETTINGS},
}
SHIPPED = {
    "id": "phone",
    "adaptation_goal": {"FLOP": "0.8x"},
    "branches": {"count": 2, "from": "0.6x", "to": "1x"},
}
MONITOR = """
interval = "100ms"
[targets]
memory = "{memory}B"
[replacement]
server = "{server}"
job = "{job}"
goal = "goal.json"
after = "200ms"
probation = "500ms"
"""


def ported(directory: Path, address: str) -> tuple[Path, str]:
    """Return the package of a goal with branches, and its job."""
    (directory / "goals.json").write_text(json.dumps([{**COMMON, **SHIPPED}]))
    command = [MISTIFY, "port", directory / "goals.json", "--out", directory / "out", "--server", address]
    subprocess.run(command, check=True, capture_output=True)
    with PortingClient(address) as client:
        (part,) = client.jobs()
    return directory / "out" / "goals" / "phone", part.job.id


@pytest.mark.slow
def test_a_target_that_no_branch_meets_leads_to_a_new_package(tmp_path: Path) -> None:
    with server(tmp_path / "store") as (address, _):
        package, job_id = ported(tmp_path, address)
        shipped = Manifest.load(package)
        assert [branch.share for branch in shipped.branches] == [0.6, 1.0]
        memory = round(0.8 * min(branch.achieved["memory_bytes"] for branch in shipped.branches))
        goal = {**COMMON, "id": "template", "adaptation_goal": SHIPPED["adaptation_goal"]}
        (tmp_path / "goal.json").write_text(json.dumps(goal))
        config = tmp_path / "monitor.toml"
        config.write_text(MONITOR.format(memory=memory, server=address, job=job_id))
        command = [MISTIFY, "monitor", "--package", package, "--config", config]
        daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            outputs, seen = inferences(package)
        finally:
            daemon.terminate()
            complaints = daemon.communicate(timeout=60)[1]
        with PortingClient(address) as client:
            goals = client.job(job_id).goals

    assert seen.goal != "phone", complaints
    added = next(goal for goal in goals if goal.id == seen.goal)
    assert added.parent == "phone", "a goal with one more limit starts from the shipped one"
    assert seen.achieved[memory_axis(seen.quantization)] <= memory
    assert all(np.isclose(output.sum(), 1, atol=1e-4) for output in outputs)
    assert Manifest.load(package) == shipped
    phases = [json.loads(line) for line in log_of(package)]
    assert any("no option meets the targets" in json.dumps(line) for line in phases)


def inferences(package: Path) -> tuple[list[Any], Manifest]:
    """Run inferences until another package is in use; return the outputs and its manifest."""
    model = load(package, threads=1)
    image = np.random.default_rng(0).uniform(size=(1, *model.inputs[0].shape[1:])).astype(np.float32)
    outputs, deadline = [], time.monotonic() + DEADLINE_SECONDS
    while model.manifest.goal == "phone" and time.monotonic() < deadline:
        outputs.append(model(image))
    outputs.append(model(image))
    return outputs, model.manifest


def log_of(package: Path) -> list[str]:
    """Return the daemon's log of decisions."""
    path = package.with_name(f"{package.name}.state") / "monitor" / "decisions.jsonl"
    return path.read_text().splitlines()
