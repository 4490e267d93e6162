"""The server of a command: a running one, or one started for the command."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from mistify.config.reading import read_batch
from mistify.errors import MistifyError, Problem, invalid_config
from mistify.uploads import as_written
from mistify_client.porting.local_server import embedded_server, lookup_problems
from mistify_client.rpc.retry import Backoff

#: An embedded server never comes back at the same address, so more attempts are useless.
_EMBEDDED_ATTEMPTS = 4

#: Shorter waits are not announced, in seconds.
_ANNOUNCED_SECONDS = 1.0


def _announce(line: str) -> None:
    typer.echo(line, err=True)


def announcing_backoff(address: str, on_wait: Callable[[str], object] = _announce) -> Backoff:
    """Return a command's retry delays; long waits for the server are announced.

    Args:
        address: The server's address, for the message.
        on_wait: Called with a line of text; prints it by default.
    """

    def wait(seconds: float) -> None:
        if seconds >= _ANNOUNCED_SECONDS:
            on_wait(f"the server at {address} cannot be reached; trying again in {seconds:.0f} s")
        time.sleep(seconds)

    return Backoff(wait=wait)


@dataclass(frozen=True)
class Serving:
    """The server for porting.

    Attributes:
        remote: The address of a running server; None to start one.
        token: The access token of a running server; None if it needs none.
        store: The store of a started server, which need not exist yet.
        roots: Directories below which a started server may read models and data.
    """

    remote: str | None
    token: str | None
    store: Path
    roots: Sequence[Path]

    @contextmanager
    def started(
        self, *, resume: bool = True, on_wait: Callable[[str], object] = _announce
    ) -> Iterator[tuple[str, str | None, Backoff]]:
        """Yield the server's address, its access token, and the retry delays.

        Args:
            resume: Continue the unfinished jobs of the store.
            on_wait: Called with a line of text while a running server is unreachable.
        """
        if self.remote is not None:
            yield self.remote, self.token, announcing_backoff(self.remote, on_wait)
            return
        with embedded_server(self.store, self.roots, resume=resume) as server:
            yield *server, Backoff(attempts=_EMBEDDED_ATTEMPTS)


def check_config(text: str, source: str, serving: Serving) -> None:
    """Reject an invalid config, including names that the server does not find.

    Args:
        source: The name of the config in errors.
        serving: The server that looks up names; it gets a temporary store if it has none yet.

    Raises:
        MistifyError: INVALID_CONFIG with every problem.
    """
    # A server on this machine has the same plug-ins.
    reading = read_batch(text, source, server_knows_more=serving.remote is not None)
    if not reading.problems:
        return
    known = {problem.place for problem in reading.problems}
    others = [each for each in _problems_of_server(text, serving) if each.place not in known]
    raise invalid_config([*reading.problems, *others], source)


def _problems_of_server(text: str, serving: Serving) -> Sequence[Problem]:
    """Return the problems that a server finds in a config when it looks up names.

    Missing files on this machine are not reported: they would be uploaded. If the server cannot look up
    names, the problems found locally are still worth reporting.
    """
    try:
        if serving.remote is None:
            with TemporaryDirectory(prefix="mistify-") as scratch:
                store = serving.store if serving.store.is_dir() else Path(scratch).resolve()
                return lookup_problems(text, store, serving.roots)
        from mistify_client.porting.local_files import local_files  # noqa: PLC0415 (only if remote)
        from mistify_client.rpc.porting import PortingClient  # noqa: PLC0415 (as above)

        backoff = announcing_backoff(serving.remote)
        with PortingClient(serving.remote, serving.token, backoff=backoff) as client:
            client.plan(local_files(text, serving.roots).text)
    except MistifyError as error:
        return [problem for problem in error.problems if as_written(problem.value) == problem.value]
    return ()
