"""The command `mistify lend`."""

import subprocess
from pathlib import Path

import pytest

from tests.mistify_client.lending.raw_client import network_message, raw_client
from tests.support.paths import DATA
from tests.support.servers import MISTIFY, killed_at_the_end
from tests.support.tokens import write_token

BLOCKS = DATA / "blocks"


def lend(*options: object) -> tuple[int, str]:
    """Run the command, and return its exit code and its errors."""
    ended = subprocess.run([MISTIFY, "lend", *map(str, options)], capture_output=True, text=True, check=False)
    return ended.returncode, ended.stderr


def test_a_started_helper_loads_a_network_and_ends_cleanly(tmp_path: Path) -> None:
    token = write_token(tmp_path / "token", "known")
    command = [MISTIFY, "lend", "--package", BLOCKS, "--listen", "127.0.0.1:0", "--token-file", token]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with killed_at_the_end(process):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:")
        with raw_client(line.split()[-1], "known") as client:
            assert client.asked(network=network_message(BLOCKS)).ready.segment_ms
        process.terminate()
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "begins a session" in errors


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--package", DATA / "exits"], 3, '"blocks": true'),
        (["--package", DATA], 3, "is not a package"),
        (["--package", BLOCKS, "--listen", "0.0.0.0:0"], 5, "--token-file"),
        (["--package", BLOCKS, "--memory", "much"], 2, "--memory"),
        (["--package", BLOCKS, "--memory", "0.5x"], 2, "--memory"),
        (["--package", BLOCKS, "--memory", "5"], 2, "add the unit, such as 5MB"),
        (["--package", BLOCKS, "--memory", "5KB"], 2, "at least 1MB"),
        (["--package", BLOCKS, "--tls-key", DATA / "key.pem"], 2, "--tls-certificate: got nothing"),
        (["--package", BLOCKS, "--clients", "0"], 2, "--clients"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else None,
)
def test_what_cannot_be_lent_is_refused_at_the_start(options: list[object], code: int, message: str) -> None:
    returned, errors = lend(*options)
    assert returned == code, errors
    assert message in errors
