"""Servers of this checkout and of another one, for comparing both in one run."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final, NamedTuple

from benchmarks.harness.run import MissingDataError

#: This checkout.
HERE: Final = Path(__file__).parents[2]


def add_against_option(parser: ArgumentParser) -> None:
    """Add `--against DIR`: another checkout with its own virtual environment in `.venv`."""
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout to compare with")


def python_of(checkout: Path) -> Path:
    """Return the Python of a checkout.

    Raises:
        MissingDataError: The checkout has no virtual environment.
    """
    if checkout == HERE:
        return Path(sys.executable)
    python = checkout.absolute() / ".venv" / "bin" / "python"
    if not python.exists():
        raise MissingDataError(f"--against {checkout} has no .venv with Mistify; run make install there")
    return python


class Addresses(NamedTuple):
    """The addresses of a server: `host:port` for gRPC, and its URL."""

    grpc: str
    url: str


@contextmanager
def serving(checkout: Path, store: Path, *options: str | Path) -> Iterator[Addresses]:
    """Run a server of a checkout on a store, and yield its addresses; it is killed at the end.

    Raises:
        RuntimeError: The server does not start; it has printed the reason.
    """
    command = [python_of(checkout), "-m", "mistify_server.cli", "serve", "--store", store, *options]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with Popen(command, stdout=PIPE, text=True, cwd=checkout) as process:
        try:
            lines = [process.stdout.readline() for _ in Addresses._fields] if process.stdout else []
            if not all(lines):
                raise RuntimeError(f"the server of {checkout} does not start")
            yield Addresses(*(line.split()[-1] for line in lines))
        finally:
            process.kill()
