"""Mistakes in a config are reported without a server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mistify_client.cli import serving
from tests.support.servers import MISTIFY, server

_SCRIPT = """
import sys
sys.modules |= {"grpc": None, "numpy": None}
from mistify_client.cli.main import app
app()
"""

GOAL = {
    "id": "half",
    "model": "digits-resnot",
    "dataset": {"train": "builtin:digits-train", "test": "tset.npz"},
    "algorithm": {"name": "auto"},
    "adaptation_goal": {"FLUP": "0.5x"},
}


def test_mistakes_and_unknown_names_are_found_without_grpc_or_numpy(tmp_path: Path) -> None:
    config = tmp_path / "goals.json"
    config.write_text(json.dumps([GOAL]))
    (tmp_path / "test.npz").touch()
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, "plan", str(config)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    head, *problems = done.stderr.splitlines()
    assert head == f"mistify: {config}: 3 problems, nothing was started"
    places = [problem.strip().partition(":")[0] for problem in problems]
    assert places == ["[0].adaptation_goal.FLUP", "[0].model", "[0].dataset.test"]
    assert problems[2].endswith('did you mean "test.npz"?')


def test_an_unreadable_model_is_reported_together_with_mistakes_in_the_config(tmp_path: Path) -> None:
    config = tmp_path / "goals.json"
    (tmp_path / "net.keras").write_text("no archive")
    data = {"train": "builtin:digits-train", "test": "builtin:digits-test"}
    config.write_text(json.dumps([{**GOAL, "model": "net.keras", "dataset": data}]))
    done = subprocess.run([MISTIFY, "plan", config], capture_output=True, text=True, check=False)
    places = [line.strip().partition(":")[0] for line in done.stderr.splitlines()[1:]]
    assert (done.returncode, places) == (2, ["[0].adaptation_goal.FLUP", "[0].model"]), done.stderr


def test_problems_found_by_a_server_are_reported_like_local_ones(tmp_path: Path) -> None:
    config = tmp_path / "goals.json"
    config.write_text(json.dumps([{**GOAL, "adaptation_goal": {"FLOP": "0.5x"}}]))
    with server(tmp_path / "store") as (address, _):
        for options in ([], ["--server", address]):
            done = subprocess.run(
                [MISTIFY, "plan", config, *options], capture_output=True, text=True, check=False
            )
            assert done.returncode == 2, done.stderr
            head, *problems = done.stderr.splitlines()
            assert head == f"mistify: {config}: 2 problems, nothing was started"
            assert [line.strip().partition(":")[0] for line in problems] == ["[0].model", "[0].dataset.test"]


@pytest.mark.parametrize("address", ["http://127.0.0.1:7466", "localhost", "127.0.0.1:port", ""])
def test_an_invalid_address_is_refused_immediately(mistify, address):
    result = mistify("jobs", "--server", address)
    assert result.exit_code == 2
    assert f'got "{address}"; expected host:port' in " ".join(result.stderr.replace("│", " ").split())


def test_a_command_reports_that_it_waits_for_a_server(monkeypatch):
    lines, slept = [], []
    monkeypatch.setattr(serving.time, "sleep", slept.append)
    wait = serving.announcing_backoff("host:7465", lines.append).wait
    wait(0.2)
    assert lines == []
    wait(5.0)
    assert lines == ["the server at host:7465 cannot be reached; trying again in 5 s"]
    assert slept == [0.2, 5.0]
