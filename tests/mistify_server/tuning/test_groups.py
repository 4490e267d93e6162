"""Groups, from the command line to the coordinator."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode
from mistify_server.cli import app
from mistify_server.store.directory import open_store
from mistify_server.store.tuning import Group

SCALES = json.dumps({"time_hours": 2})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fleet.prepare(tmp_path / "store")
    return tmp_path / "store"


def run(store: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["groups", *arguments, "--store", str(store)])
    return result.exit_code, result.output


def test_groups_are_added_listed_and_removed(store):
    assert run(store, "add", "cats", "--job", fleet.JOB, "--scales", SCALES) == (0, "added cats\n")
    with open_store(store) as opened:
        assert opened.tuning.group("cats") == Group("cats", fleet.JOB, 0, "spatiotemporal", {"time_hours": 2})
    assert [name in run(store, "list")[1] for name in ("cats", fleet.GROUP)] == [True, True]
    assert run(store, "remove", "cats") == (0, "removed cats\n")
    assert "cats" not in run(store, "list")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        (["add", "a/b", "--job", fleet.JOB, "--scales", SCALES], ErrorCode.INVALID_CONFIG, "rename it"),
        (["add", "a", "--job", "none", "--scales", SCALES], ErrorCode.NOT_FOUND, "no job none"),
        (
            ["add", "a", "--job", fleet.JOB, "--batch", "7", "--scales", SCALES],
            ErrorCode.NOT_FOUND,
            "batch 7",
        ),
        (["add", "a", "--job", fleet.JOB, "--scales", "[]"], ErrorCode.INVALID_CONFIG, "expected an object"),
        (["add", "a", "--job", fleet.JOB, "--scales", "{"], ErrorCode.INVALID_CONFIG, "the settings"),
        (["add", "a", "--job", fleet.JOB, "--scales", '{"a": 1}'], ErrorCode.INVALID_CONFIG, "location_km"),
        (["add", fleet.GROUP, "--job", fleet.JOB, "--scales", SCALES], ErrorCode.CONFLICT, "already"),
        (["remove", "a"], ErrorCode.NOT_FOUND, 'no group "a"'),
    ],
)
def test_impossible_operations_are_reported(store, arguments, code, reported):
    exit_code, output = run(store, *arguments)
    assert exit_code == code.exit_code
    assert reported in " ".join(output.split())
    assert "Traceback" not in output
