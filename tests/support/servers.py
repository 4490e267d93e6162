"""Servers in separate processes."""

import asyncio.subprocess
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

SERVE = (sys.executable, "-m", "mistify_server.cli", "serve", "--http", "off")

#: The `mistify` command.
MISTIFY = Path(sys.executable).parent / "mistify"


@contextmanager
def server(
    store: Path,
    *options: str | Path,
    listen: str = "127.0.0.1:0",
    log: IO[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server, yield its address and process, and stop it at the end if it still runs."""
    process = subprocess.Popen(
        [*SERVE, "--store", store, "--listen", listen, *options],
        stdout=subprocess.PIPE,
        stderr=log or subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        yield last_word(process), process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


@contextmanager
def web_server(store: Path, *options: str | Path) -> Iterator[str]:
    """Start an HTTP server, yield its URL, and stop it at the end."""
    with server(store, "--http", "127.0.0.1:0", *options) as (_, process):
        yield last_word(process)


def last_word(process: subprocess.Popen[str]) -> str:
    """Return the last word of the next line that a server prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the server has ended"
    return line.split()[-1]


@contextmanager
def killed_at_the_end(process: subprocess.Popen[str] | asyncio.subprocess.Process) -> Iterator[None]:
    """Kill a process at the end of the block if it still runs."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            process.kill()
