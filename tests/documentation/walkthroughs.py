"""Executable pages of the documentation: files are saved, and commands print the documented output."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import REPOSITORY

#: A fenced block and the line before it.
_BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
_NAMED = re.compile(r"Save this as `([\w./-]+)`")
_FIGURE = re.compile(r"[-+]?\d[\d.,:/-]*")
_JOB = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{8}\b")
_COMMENT = re.compile(r"\s+# (?:exit code (?P<code>\d+))?.*$")

#: Server addresses on the pages, by the beginning of the server's output line that announces them.
_ADDRESSES = {"listening on ": "127.0.0.1:7465", "HTTP at http://": "127.0.0.1:7466"}
_SERVE = "mistify-server serve"

#: Marks on a page that the output has more lines, or a line more words.
MORE = "..."


@dataclass(frozen=True)
class Command:
    """A command of a page, its documented output lines, and its exit code."""

    line: str
    expected: tuple[str, ...]
    code: int

    @classmethod
    def of(cls, line: str, expected: Iterable[str]) -> "Command":
        """Parse a command and its comment, which gives a non-zero exit code."""
        comment = _COMMENT.search(line)
        code = int(comment["code"] or 0) if comment else 0
        return cls(_COMMENT.sub("", line), tuple(expected), code)


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a page.

    Attributes:
        language: Language tag of the block.
        text: Content of the block.
        file: Name under which the page says to save the block, or None.
    """

    language: str
    text: str
    file: str | None

    @property
    def commands(self) -> list[Command]:
        """Return the commands of a console block, each up to the next `$ `."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:] if self.language == "console" else []
        lines = [re.sub(r" \\\n\s*", " ", part).splitlines() for part in parts]
        return [Command.of(first, others) for first, *others in lines]

    @property
    def can_be_followed(self) -> bool:
        """Return whether the snippet can be executed."""
        return self.file is not None or bool(self.commands)

    @property
    def names(self) -> list[str]:
        """Return the names of the snippet for exceptions: its commands, or its first line."""
        return [command.line for command in self.commands] or [self.text.partition("\n")[0]]


def snippets_of(page: Path) -> list[Snippet]:
    """Return the fenced blocks of a page, in order."""
    return [
        Snippet(block["language"], block["text"], (named := _NAMED.search(block["before"])) and named[1])
        for block in _BLOCK.finditer(page.read_text())
    ]


def words_of(line: str) -> str:
    """Return a line without numbers and units of sizes and times, with single spaces."""
    return " ".join(re.sub(r"# ?(KB|MB|us|ms|s|min)\b", "#", _FIGURE.sub("#", line)).split())


class Walkthrough:
    """A simulated reader who follows a page in a directory.

    Args:
        directory: Working directory, with `configs` and `docs` of the repository.
        skipped: Names of snippets that are not executed.
        environment: Additional environment variables for the commands.
    """

    def __init__(
        self, directory: Path, skipped: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._skipped = skipped
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, **(environment or {})}
        self._job = "JOB"
        self._running: list[subprocess.Popen[str]] = []
        self._addresses: dict[str, str] = {}
        for name in ("configs", "docs"):
            (directory / name).symlink_to(REPOSITORY / name)

    def __enter__(self) -> "Walkthrough":
        return self

    def __exit__(self, *_: object) -> None:
        while self._running:
            self._stop()

    def follow(self, page: Path) -> None:
        """Execute a page to its end."""
        for snippet in snippets_of(page):
            if snippet.file is not None:
                path = self.directory / snippet.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(snippet.text)
            assert snippet.can_be_followed or snippet.names[0] in self._skipped, snippet.names[0]
            for command in snippet.commands:
                if command.line not in self._skipped:
                    self._enter(command)

    def _enter(self, command: Command) -> None:
        if command.line == "kill %1":
            self._stop()
        elif command.line.startswith(_SERVE):
            self._serve(command)
        elif command.line.endswith("&"):
            self._start(command.line.removesuffix("&"), subprocess.DEVNULL)
        else:
            self._run(command)

    def _run(self, command: Command) -> None:
        line = self._as_here(command.line)
        done = subprocess.run(
            ["bash", "-ec", line], cwd=self.directory, env=self._environment, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        output = done.stdout + done.stderr
        assert done.returncode == command.code, f"{line}\n{output}"
        self._job = next(iter(_JOB.findall(output)), self._job)
        self._compare(command, output)

    def _serve(self, command: Command) -> None:
        """Start a server on free ports, and record its addresses."""
        line = f"{command.line.removesuffix('&')} --listen 127.0.0.1:0 --http 127.0.0.1:0"
        process = self._start(line, subprocess.PIPE)
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in _ADDRESSES]
        for (beginning, address), line in zip(_ADDRESSES.items(), lines, strict=True):
            assert line.startswith(beginning), line
            self._addresses[address] = line.removeprefix(beginning).rstrip("/")
        self._compare(command, "\n".join(lines))

    def _start(self, line: str, stdout: int) -> "subprocess.Popen[str]":
        """Start a command in the background."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self.directory, env=self._environment, text=True,
            stdout=stdout, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._running.append(process)
        return process

    def _stop(self) -> None:
        process = self._running.pop()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0

    def _as_here(self, line: str) -> str:
        for address, actual in self._addresses.items():
            line = line.replace(address, actual)
        return re.sub(r"\bJOB\b", self._job, line)

    def _compare(self, command: Command, output: str) -> None:
        """Assert that the lines of the page are printed; lines that end in `MORE` are prefixes."""
        printed = [words_of(line) for line in output.splitlines()]
        for line in command.expected:
            words = words_of(self._as_here(line).removesuffix(MORE))
            begun = line.endswith(MORE) and any(one.startswith(words) for one in printed)
            assert begun or words in printed or line == MORE, f"{command.line}\n{line}\n{output}"
