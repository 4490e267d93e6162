"""Loading a package, from a directory or from the server that made it (paper 6)."""

import logging
import operator
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

from mistify.errors import ErrorCode, MistifyError
from mistify.files.places import cache_directory
from mistify.machine import MOST_THREADS
from mistify.package.opened import Package
from mistify.package.verification import verify
from mistify_client.runtime.loaded import recorded
from mistify_client.runtime.model import PortedModel
from mistify_client.runtime.served_task import ServedTask, TaskLike
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.trust import Trust, check_named, check_trusted
from mistify_client.runtime.version_loading import LoadSettings, load_current_or_shipped
from mistify_client.runtime.versions import lost_current, state_directory

if TYPE_CHECKING:  # at run time, only apps with helpers need it
    from mistify_client.lending.config import LendingConfig

logger = logging.getLogger(__name__)


@overload
def load(
    package: str | os.PathLike[str],
    *,
    threads: int | None = None,
    check: bool = False,
    task: TaskLike | None = None,
    lending: str | os.PathLike[str] | None = None,
    trusted: Iterable[str] | None = None,
) -> PortedModel: ...


@overload
def load(
    *,
    server: str,
    job: str,
    goal: str,
    token: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    check: bool = False,
    task: TaskLike | None = None,
    lending: str | os.PathLike[str] | None = None,
    trusted: Iterable[str] | None = None,
) -> PortedModel: ...


def load(
    package: str | os.PathLike[str] | None = None,
    *,
    server: str | None = None,
    job: str | None = None,
    goal: str | None = None,
    token: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    check: bool = False,
    task: TaskLike | None = None,
    lending: str | os.PathLike[str] | None = None,
    trusted: Iterable[str] | None = None,
) -> PortedModel:
    """Load a package from a directory, or the package of a job's goal from a server.

    A previously downloaded package is reused, even without a connection. Only `mistify adapt` downloads its
    blocks, if it has any.

    Args:
        package: The package's directory.
        server: `host:port` of the server, instead of `package`.
        job: The job's id on the server.
        goal: The goal's id in the job.
        token: The server's access token.
        cache: The directory for downloads; `~/.cache/mistify` (or below `$XDG_CACHE_HOME`) by default.
        threads: Number of threads of LiteRT; by default, the number with which the package was measured, to
            which its latencies refer.
        check: Reject inputs with infinity or NaN, for which LiteRT may return ordinary-looking outputs.
            Requires a pass over the inputs.
        task: The task that the package has to serve, such as `["exactly:2", "odd"]` or `{"classes": ["cat",
            "dog"]}`. Versions for another task, which `mistify customize` may install, are then not used. By
            default, any task is accepted.
        lending: A TOML file with a table `[lending]`, such as the config of the monitor: helpers in the
            network that run blocks of the package while that is faster. By default, this device runs
            everything.
        trusted: The keys of servers, as `ed25519:...`, by one of which the package has to be signed, or the
            `sha256:...` of its manifest. By default, those in the file of `mistify trust`; without it, any
            package is accepted.

    Raises:
        MistifyError: NOT_FOUND, there is no package, or it serves another task; CORRUPT_PACKAGE, a file does
            not match its digest, or cannot be used; STORE_VERSION, a newer Mistify wrote it; UNTRUSTED, it is
            not signed by a trusted key; INVALID_CONFIG, there is no such task or key, or the table or its
            file with the token is invalid; NO_ROOM, the download does not fit on the disk; UNAVAILABLE, the
            server cannot be reached, or the library for signatures is not installed; other errors of the
            server, such as UNAUTHENTICATED.
        OSError: A file cannot be written.
        TypeError: Neither a directory nor all of `server`, `job` and `goal` are given, or both.
        ValueError: `threads` is below 1 or above 1024.
    """
    if threads is not None:
        threads = operator.index(threads)
        if not 1 <= threads <= MOST_THREADS:
            raise ValueError(f"threads is {threads}: give 1 to {MOST_THREADS}, or leave it out")
    trust = Trust.configured() if trusted is None else Trust.of(trusted, "trusted")
    settings = _Settings(threads, check, task, _lending(lending), trust)
    if package is not None and server is None and job is None and goal is None:
        return _open(Path(package), settings)
    if package is None and server is not None and job is not None and goal is not None:
        directory = Path(cache or cache_directory()) / job / goal
        return _open(downloaded(directory, server, job, goal, token, trust=trust), settings)
    raise TypeError("load() takes either a package's directory or all of server, job and goal")


def downloaded(
    directory: Path, server: str, job: str, goal: str, token: str | None, *, trust: Trust | None = None
) -> Path:
    """Return the directory of a package; download or repair it if necessary and the server is reachable.

    Args:
        directory: The present or future directory of the package.
        server: The server's address.
        job: The job of the package on this server.
        goal: The package's goal in the job.
        token: An access token for the server.
        trust: The keys by which the package has to be signed, or else is downloaded again; None for any.

    Raises:
        MistifyError: The package can be neither used nor downloaded.
    """
    from mistify_client.rpc.porting import PortingClient  # noqa: PLC0415 - gRPC, only for downloads
    from mistify_client.rpc.retry import FEW_ATTEMPTS, Backoff  # noqa: PLC0415

    try:
        package = Package.open(directory)
        check_trusted(package, trust)
        package.verify()
    except MistifyError as problem:
        try:
            with PortingClient(server, token, backoff=Backoff(attempts=FEW_ATTEMPTS)) as client:
                client.fetch_without_blocks(job, goal, directory)
        except MistifyError as error:
            if problem.code is ErrorCode.UNTRUSTED:
                raise problem from error
            if not _can_start(directory):
                raise
            logger.warning("blocks of %s are damaged, and cannot be downloaded again: %s", directory, error)
    return directory


class _Settings(NamedTuple):
    """The settings of an app for a package; see `load`."""

    threads: int | None
    check: bool
    task: TaskLike | None
    lending: "LendingConfig | None"
    trust: Trust | None


def _open(package: Path, requested: _Settings) -> PortedModel:
    package = package.absolute()  # the app may change its working directory
    shipped = Package.open(package)  # creates no state directory next to something that is not a package
    check_named(shipped, requested.trust)
    task = None if requested.task is None else ServedTask.of(shipped, requested.task)
    settings = LoadSettings(requested.threads, task, requested.lending, requested.trust)
    state = state_directory(package)
    switchboard = _switchboard(state)
    if (reason := lost_current(state, shipped)) is not None:
        logger.warning("%s is used as it was shipped: %s", package, reason)
    opened, generation = load_current_or_shipped(package, state, switchboard, settings, shipped)
    loaded = recorded(opened, state, generation)
    return PortedModel(package, switchboard, loaded, settings, check=requested.check)


def _lending(path: str | os.PathLike[str] | None) -> "LendingConfig | None":
    if path is None:
        return None
    from mistify_client.lending.config import read_lending  # noqa: PLC0415 - as above

    config = read_lending(Path(path))
    config.token()  # reported now; later, helpers are not asked while it cannot be read
    return config


def _switchboard(state: Path) -> Switchboard:
    try:
        return Switchboard.open(state)
    except (MistifyError, OSError) as error:
        logger.warning("no monitor can switch this model, because its state cannot be written: %s", error)
        return Switchboard()


def _can_start(directory: Path) -> bool:
    """Check whether a package is complete except for its blocks, each of which is verified before it runs."""
    try:
        verify(directory, with_blocks=False)
    except MistifyError:
        return False
    return True
