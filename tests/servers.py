"""Servers that are processes of their own."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

SERVE = (sys.executable, "-m", "mistify_server.cli", "serve", "--http", "off")

#: The command line of the client.
MISTIFY = Path(sys.executable).parent / "mistify"


@contextmanager
def server(
    store: Path,
    *options: str | Path,
    listen: str = "127.0.0.1:0",
    log: IO[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server, and yield its address and its process; it is stopped at the end, if it still runs."""
    process = subprocess.Popen(
        [*SERVE, "--store", store, "--listen", listen, *options],
        stdout=subprocess.PIPE,
        stderr=log or subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], process
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def web_server(store: Path, *options: str | Path) -> Iterator[str]:
    """Start a server that speaks HTTP, and yield its URL; it is stopped at the end."""
    with server(store, "--http", "127.0.0.1:0", *options) as (_, process):
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
