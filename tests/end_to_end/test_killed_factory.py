"""A job whose server is killed while it prepares a factory: the package is that of an undisturbed job."""

import json
import signal
from pathlib import Path

import pytest

from mistify.jobs.job import GoalState, JobEvent, ProgressUpdate
from mistify.package.records import PackagedFile
from mistify_client.rpc.porting import PortingClient
from tests.end_to_end.test_property_tasks import COMMON, SPACE, write_data, write_network
from tests.support.servers import server

#: Files of the package that no measurement goes into.
FILES = {"serve.tflite", "supernet.tflite", "assembler.tflite", "factory.json"}

STEPS = {"answer_steps": 400, "gate_steps": 400, "batch_size": 16, "encoder": 8, "gaters": 1}


def write_config(directory: Path) -> str:
    """Write a network, data and tasks; return the config."""
    write_network(directory / "net.keras")
    write_data(directory / "train.npz", 300, 0)
    write_data(directory / "test.npz", 100, 1)
    (directory / "tasks.json").write_text(json.dumps(SPACE))
    algorithm = {"name": "nnfactory", "config": {**STEPS, "inside": True}}
    goal = {"id": "dark-side", "task": "dark-side", "adaptation_goal": {"FLOP": "1x"}}
    return json.dumps([{**COMMON, "algorithm": algorithm, **goal}])


def packaged(address: str, job: str) -> dict[str, PackagedFile]:
    """Wait for a job, and return the files of its package."""
    with PortingClient(address) as client:
        for _ in client.watch(job):
            pass
        (goal,) = client.job(job).goals
        assert goal.state is GoalState.MET
        return {file.name: PackagedFile(size=file.size, sha256=file.sha256) for file in goal.files}


def in_the_second_stage(event: JobEvent) -> bool:
    progress = event.event
    return (
        isinstance(progress, ProgressUpdate)
        and progress.stage == "preparing nnfactory"
        and progress.step > STEPS["answer_steps"] + 50
    )


@pytest.mark.slow
def test_a_killed_server_ends_at_the_same_factory(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    root = ("--data-root", tmp_path)
    with server(tmp_path / "undisturbed", *root) as (address, _), PortingClient(address) as client:
        expected = packaged(address, client.submit(config, "").id)
    store = tmp_path / "killed"
    with server(store, *root) as (address, first):
        with PortingClient(address) as client:
            job = client.submit(config, "").id
            assert any(in_the_second_stage(event) for event in client.watch(job))
        first.send_signal(signal.SIGKILL)
        first.wait()
        kept = {path.name for path in store.glob("artifacts/preparations/*/*")}
        with server(store, *root, listen=address):
            actual = packaged(address, job)
    assert {"answers", "gates"} <= kept
    assert {name: actual[name] for name in FILES} == {name: expected[name] for name in FILES}
