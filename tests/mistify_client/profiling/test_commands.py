"""What the commands of measured devices refuse before anything is measured or sent."""

import json

import pytest
from typer.testing import CliRunner

from mistify_client.cli import app

TABLE = {"name": "my-board", "machine": "armv8", "runtime": "LiteRT", "readings": []}
READING = {"operations": [{"kind": "add", "positions": 1, "c_in": 2, "c_out": 2}], "integer": False}


@pytest.fixture
def mistify(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("MISTIFY_SERVER", raising=False)
    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--name", "my-board"], "--server: got nothing; expected where the table goes"),
        (["--name", "My Board", "--table", "x.json"], 'name: got "My Board"; expected up to 64 lower-case'),
        (
            ["--name", "t4", "--table", "x.json"],
            'name: got "t4"; expected a name that is not in',
        ),
        (
            ["--name", "my-board", "--table", "x.json", "--threads", "1,zwei"],
            '--threads: got "1,zwei"; expected numbers of threads',
        ),
    ],
)
def test_mistakes_are_told_at_once(mistify, args, told):
    result = mistify("profile-device", *args)
    assert (result.exit_code, told in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "holds no table"),
        (json.dumps({**TABLE, "readings": [{**READING, "threads": 1}]}), "readings.0.median_ms"),
        (
            json.dumps({**TABLE, "readings": [{**READING, "threads": 0, "median_ms": 1}]}),
            "readings[0].threads",
        ),
    ],
)
def test_a_table_that_is_none_is_refused_with_its_place(mistify, tmp_path, content, told):
    path = tmp_path / "table.json"
    path.write_text(content)
    result = mistify("profile-device", "--name", "my-board", "--table", path)
    assert (result.exit_code, told in result.stderr) == (2, True), result.stderr


def test_a_table_that_is_there_is_not_measured_again(mistify, tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps({**TABLE, "readings": [{**READING, "threads": 1, "median_ms": 1.0}]}))
    before = path.read_bytes()
    assert mistify("profile-device", "--name", "my-board", "--table", path).exit_code == 0
    assert path.read_bytes() == before
