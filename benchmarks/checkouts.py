"""Servers of this checkout and of another one, to compare both in one run."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

from benchmarks.harness import MissingDataError

#: This checkout.
HERE: Final = Path(__file__).parents[1]


def add_against_option(parser: ArgumentParser) -> None:
    """Add `--against DIR`: another checkout, with a virtual environment of its own in `.venv`."""
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout to compare with")


def python_of(checkout: Path) -> Path:
    """Return the Python of a checkout.

    Raises:
        MissingDataError: It has no virtual environment.
    """
    if checkout == HERE:
        return Path(sys.executable)
    python = checkout.absolute() / ".venv" / "bin" / "python"
    if not python.exists():
        raise MissingDataError(f"--against {checkout} has no .venv with Mistify; run make install there")
    return python


@contextmanager
def serving(checkout: Path, store: Path, *options: str | Path) -> Iterator[str]:
    """Run a server of a checkout on a store, and yield its address; it is killed at the end."""
    command = [python_of(checkout), "-m", "mistify_server.cli", "serve", "--store", store, *options]
    command += ["--listen", "127.0.0.1:0", "--http", "off"]
    with Popen(command, stdout=PIPE, text=True, cwd=checkout) as process:
        try:
            yield process.stdout.readline().split()[-1] if process.stdout else ""
        finally:
            process.kill()
