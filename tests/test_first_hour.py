"""docs/first-hour.md does what it says: its files are written, and its commands say what they say there."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.servers import server

PAGE = REPOSITORY / "docs" / "first-hour.md"

#: A block, with the text before it.
BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL)
NAMED = re.compile(r"Save this as `([\w.]+)`")
FIGURE = re.compile(r"[-+]?\d[\d.,:/-]*")
ADDRESS = "127.0.0.1:7465"


def words_of(line: str) -> str:
    """Return a line with neither its figures nor the units of sizes and times, its words one space apart."""
    return " ".join(re.sub(r"# ?(KB|MB|us|ms|s|min)\b", "#", FIGURE.sub("#", line)).split())


class Hour:
    """A user in a directory, who follows the page."""

    def __init__(self, directory: Path, address: str) -> None:
        self.directory = directory
        self.address = address
        self.environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def follow(self, block: re.Match[str]) -> None:
        name = NAMED.search(block["before"])
        if block["kind"] == "console":
            for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                command, _, expected = part.partition("\n")
                self.run(command, expected.splitlines())
        else:
            assert name is not None, f"a block of {block['kind']} without a file's name"
            (self.directory / name[1]).write_text(block["text"])

    def run(self, command: str, expected: list[str]) -> None:
        if command.endswith("&"):  # the server, which the test has started
            return
        command = command.replace(ADDRESS, self.address).replace("JOB", self.job)
        done = subprocess.run(
            shlex.split(command), cwd=self.directory, env=self.environment, check=False, capture_output=True,
            text=True,
        )  # fmt: skip
        output = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{output}"
        lines = {words_of(line) for line in done.stdout.splitlines()}
        for line in expected:
            if line != "...":
                assert words_of(line.replace("JOB", self.job)) in lines, f"{command}\n{line}\n{output}"

    @property
    def job(self) -> str:
        report = self.directory / "out" / "report.json"
        return str(json.loads(report.read_text())["job"]) if report.exists() else "JOB"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_first_hour(tmp_path: Path) -> None:
    blocks = list(BLOCK.finditer(PAGE.read_text()))
    assert len(blocks) > 12
    with server(tmp_path / "store") as (address, _):
        hour = Hour(tmp_path, address)
        for block in blocks:
            hour.follow(block)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    # A plain network of convolutions, with default settings, keeps what it knew.
    assert report["source"]["accuracy"] > 0.85
    assert all(goal["achieved"]["accuracy_change"] > -0.08 for goal in report["goals"])


def test_figures_are_left_out_of_the_comparison() -> None:
    assert words_of("phone: met,  accuracy 93.7%, 21.6us") == words_of("phone: met, accuracy 8%, 2ms")
    assert words_of("met, accuracy 93.7%") != words_of("unmet, accuracy 93.7%")
