"""Pages of the documentation, followed as a reader would: files are saved, commands print what they say."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import REPOSITORY

#: A fenced block, with the line before it.
_BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
_NAMED = re.compile(r"Save this as `([\w./-]+)`")
_FIGURE = re.compile(r"[-+]?\d[\d.,:/-]*")
_JOB = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{8}\b")
_COMMENT = re.compile(r"\s+# (?:exit code (?P<code>\d+))?.*$")

#: Where pages say that servers listen, by what the line of a server's output begins with that says so.
_ADDRESSES = {"listening on ": "127.0.0.1:7465", "HTTP at http://": "127.0.0.1:7466"}
_SERVE = "mistify-server serve"

#: What a page prints where the output has more lines, or a line has more words.
MORE = "..."


@dataclass(frozen=True)
class Command:
    """A command of a page, the lines that the page says it prints, and the exit code."""

    line: str
    expected: tuple[str, ...]
    code: int

    @classmethod
    def of(cls, line: str, expected: Iterable[str]) -> "Command":
        """Return a command without its comment, which names the exit code where that is not 0."""
        comment = _COMMENT.search(line)
        code = int(comment["code"] or 0) if comment else 0
        return cls(_COMMENT.sub("", line), tuple(expected), code)


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a page.

    Attributes:
        language: As the page names it.
        text: Its content.
        file: The name under which the page asks to save it; None where it does not.
    """

    language: str
    text: str
    file: str | None

    @property
    def commands(self) -> list[Command]:
        """The commands of a console, each up to the next `$ `."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:] if self.language == "console" else []
        lines = [re.sub(r" \\\n\s*", " ", part).splitlines() for part in parts]
        return [Command.of(first, others) for first, *others in lines]

    @property
    def can_be_followed(self) -> bool:
        """Whether a reader knows what to do with it."""
        return self.file is not None or bool(self.commands)

    @property
    def names(self) -> list[str]:
        """What exceptions call it: its commands, or its first line."""
        return [command.line for command in self.commands] or [self.text.partition("\n")[0]]


def snippets_of(page: Path) -> list[Snippet]:
    """Return the fenced blocks of a page, in their order."""
    return [
        Snippet(block["language"], block["text"], (named := _NAMED.search(block["before"])) and named[1])
        for block in _BLOCK.finditer(page.read_text())
    ]


def words_of(line: str) -> str:
    """Return a line with neither its figures nor the units of sizes and times, its words one space apart."""
    return " ".join(re.sub(r"# ?(KB|MB|us|ms|s|min)\b", "#", _FIGURE.sub("#", line)).split())


class Walkthrough:
    """A reader in a directory, who follows a page.

    Args:
        directory: Where the reader works; `configs` and `docs` of the repository are there.
        skipped: What is not done, by its name.
        environment: Of the commands, besides that of the test.
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
        """Follow a page to its end."""
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
        elif command.line.endswith("&"):
            self._serve(command)
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
        """Start a server where ports are free, and learn its addresses."""
        assert command.line.startswith(_SERVE)
        line = f"exec {command.line.removesuffix('&')} --listen 127.0.0.1:0 --http 127.0.0.1:0"
        process = subprocess.Popen(
            ["bash", "-c", line], cwd=self.directory, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._running.append(process)
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in _ADDRESSES]
        for (beginning, address), line in zip(_ADDRESSES.items(), lines, strict=True):
            assert line.startswith(beginning), line
            self._addresses[address] = line.removeprefix(beginning).rstrip("/")
        self._compare(command, "\n".join(lines))

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
        """Assert that the lines of the page are printed, and those that end in `MORE` begun."""
        printed = [words_of(line) for line in output.splitlines()]
        for line in command.expected:
            words = words_of(self._as_here(line).removesuffix(MORE))
            begun = line.endswith(MORE) and any(one.startswith(words) for one in printed)
            assert begun or words in printed or line == MORE, f"{command.line}\n{line}\n{output}"
