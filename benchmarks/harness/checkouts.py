"""Servers of this checkout and of another one, for comparing both in one run."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final, NamedTuple

from benchmarks.harness import records
from benchmarks.harness.run import MissingDataError

#: This checkout.
HERE: Final = Path(__file__).parents[2]


def add_against_option(parser: ArgumentParser, commit: str = "") -> None:
    """Add `--against DIR`: a checkout of another commit, with its own virtual environment in `.venv`.

    Args:
        commit: The beginning of the commit that the targets compare with; empty for any other commit.
    """
    other = partial(other_checkout, commit=commit)
    parser.add_argument("--against", type=other, metavar="DIR", help="a checkout to compare with")


def other_checkout(directory: str, commit: str = "") -> Path:
    """Return the directory of a checkout that can be compared with this one.

    Args:
        commit: See `add_against_option`.

    Raises:
        ArgumentTypeError: Its code is that of no commit, of this commit, or not of the requested one.
    """
    theirs = records.commit(Path(directory))
    if theirs is None:
        raise ArgumentTypeError(f"{directory} is not a checkout; `git worktree add DIR COMMIT` makes one")
    if theirs.endswith("-dirty"):
        raise ArgumentTypeError(f"{directory} has changes that are not committed; commit or undo them")
    if theirs == records.commit(HERE):
        raise ArgumentTypeError(f"{directory} has the commit of this checkout, {theirs}; check out another")
    if not theirs.startswith(commit):
        raise ArgumentTypeError(
            f"{directory} has {theirs}; the targets compare with {commit}: check that out"
        )
    return Path(directory)


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
