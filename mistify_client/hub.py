"""A replacement for `tensorflow_hub.load`: the same call loads a ported model (paper 7).

from mistify_client import hub

model = hub.load("resnet", porting={"server": "10.0.0.2:7465", "config": {...}})
"""

import functools
import hashlib
import importlib
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Required, TypedDict

from mistify.config.reading import parse_batch
from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify.files.places import cache_directory
from mistify.jobs.job import GoalState
from mistify.package.manifest import Manifest
from mistify.package.verification import verify
from mistify_client.porting.follow import follow, package_directory
from mistify_client.porting.goal import only_goal
from mistify_client.porting.progress import LineDisplay
from mistify_client.porting.submission import attach
from mistify_client.rpc.porting import PortingClient
from mistify_client.runtime import loading
from mistify_client.runtime.model import PortedModel

__all__ = ["intercept", "load"]

logger = logging.getLogger(__name__)


class Porting(TypedDict, total=False):
    """The origin of a ported model: a goal of a job, or a config for porting.

    Attributes:
        server: `host:port` of the server.
        token: The server's access token.
        job: The id of the job on the server.
        goal: The id of the goal in the job.
        config: One config as in Figure 3; its default model is the handle.
        cache: The directory for packages; `~/.cache/mistify` (or below `$XDG_CACHE_HOME`) by default.
        threads: The number of threads of LiteRT; None for the number with which the package was measured.
        trusted: The keys of servers, as for `mistify_client.load`.
    """

    server: Required[str]
    token: str
    job: str
    goal: str
    config: Mapping[str, object]
    cache: str
    threads: int
    trusted: Sequence[str]


def load(handle: str, tags: Any = None, options: Any = None, *, porting: Porting | None = None) -> Any:
    """Load a ported model; without `porting`, load the model that tensorflow_hub finds for a handle.

    The first call submits the config and waits for the job; later calls need no server.

    Args:
        tags: Passed to `tensorflow_hub.load`; not allowed for a ported model.
        options: Passed to `tensorflow_hub.load`; not allowed for a ported model.
        porting: The origin of the ported model. Blocks of its package are downloaded on demand.

    Returns:
        A `PortedModel`; without `porting`, a SavedModel loaded by TensorFlow.

    Raises:
        MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET, with every problem of the config, or
            of the keys; NOT_FOUND, there is no such goal, or it ended without a package; CORRUPT_PACKAGE, a
            file of the package is missing or damaged; STORE_VERSION, a newer Mistify wrote it; UNTRUSTED, it
            is not signed by a trusted key; NO_ROOM, it does not fit on the disk; UNAVAILABLE, the server
            cannot be reached, or a library is needed and not installed; other errors of the server, such as
            UNAUTHENTICATED or QUOTA_EXCEEDED.
        OSError: A file cannot be written.
        TypeError: The arguments contradict each other, or `porting` has other keys.
        ValueError: `threads` is below 1 or above 1024.
    """
    if porting is None:
        alternative = "or give `porting`"
        module = _tensorflow_hub("without `porting`, models are loaded by tensorflow_hub", alternative)
        return inspect.unwrap(module.load)(handle, tags, options)
    if tags is not None or options is not None:
        raise TypeError("load() takes tags and options for TensorFlow only: a ported model has none")
    if not isinstance(porting, Mapping):
        raise TypeError(f"porting is {porting!r}: give a dict such as {{'server': 'HOST:PORT', ...}}")
    if unknown := porting.keys() - Porting.__annotations__.keys():
        expected = ", ".join(Porting.__annotations__)
        raise TypeError(f"porting has no {', '.join(map(repr, sorted(unknown)))}; it takes {expected}")
    if "server" not in porting:
        raise TypeError("porting has to name the server: {'server': 'HOST:PORT', ...}")
    return _ported(handle, **porting)


class Interception:
    """A patch of `tensorflow_hub.load` that loads ported models; a context manager, or installed permanently.

    Args:
        porting: The default origin of models; without it, calls that name no origin load as before.
    """

    def __init__(self, porting: Porting | None = None) -> None:
        self._porting = porting
        self._module: Any = None
        self._original: Any = None

    def install(self) -> None:
        """Patch tensorflow_hub.

        Raises:
            MistifyError: UNAVAILABLE if it is not installed.
        """
        if self._original is None:
            alternative = "or call mistify_client.hub.load instead of tensorflow_hub.load"
            module = self._module = _tensorflow_hub("an interception patches tensorflow_hub", alternative)
            self._original = module.load
            module.load = self._patched(module.load)

    def restore(self) -> None:
        """Undo the patch of tensorflow_hub."""
        if self._original is not None:
            self._module.load = self._original
            self._original = None

    def __enter__(self) -> "Interception":
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def _patched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load_or_port(
            handle: str, tags: Any = None, options: Any = None, *, porting: Porting | None = self._porting
        ) -> Any:
            return load(handle, tags, options, porting=porting)

        return load_or_port


def intercept(porting: Porting | None = None) -> Interception:
    """Return an interception for use in a `with` statement, or to be installed."""
    return Interception(porting)


def _ported(
    handle: str,
    *,
    server: str,
    token: str | None = None,
    job: str | None = None,
    goal: str | None = None,
    config: Mapping[str, object] | None = None,
    cache: str | None = None,
    threads: int | None = None,
    trusted: Sequence[str] | None = None,
) -> PortedModel:
    directory = Path(cache or cache_directory())
    if config is not None and job is None and goal is None:
        with PortingClient(server, token) as client:
            package = _package(
                client, json.dumps([{"model": handle, **config}], sort_keys=True), server, directory
            )
        manifest = Manifest.load(package)
        loading.downloaded(package, server, manifest.job, manifest.goal, token)  # to replace damaged blocks
        return loading.load(package, threads=threads, trusted=trusted)
    if config is None and job is not None and goal is not None:
        return loading.load(
            server=server,
            job=job,
            goal=goal,
            token=token,
            cache=directory,
            threads=threads,
            trusted=trusted,
        )
    raise TypeError("porting takes either a config or both job and goal")


def _package(client: PortingClient, config: str, server: str, cache: Path) -> Path:
    """Return the directory of a config's package; port it first if it is not in the cache."""
    source = "porting.config"
    parsed = only_goal(parse_batch(config, source, server_knows_more=True), source)
    # On another server, the same config may refer to different models and data.
    out = cache / "ported" / hashlib.sha256(f"{server}\n{config}".encode()).hexdigest()
    package = package_directory(out, parsed.id)
    try:
        verify(package, with_blocks=False)
    except MistifyError:
        out.mkdir(parents=True, exist_ok=True)
        with locked(out):  # other processes that load the same model wait
            job = attach(client, config, out, server)
            show = LineDisplay(logger.info)
            job, damaged = follow(client, job, out, show, fetch=client.fetch_without_blocks)
        damaged.check()
        goal = next(goal for goal in job.goals if goal.id == parsed.id)
        if not goal.files:
            message = f"{parsed.model} has not been ported, the goal is {goal.state.value}: {goal.reason}"
            raise MistifyError(ErrorCode.NOT_FOUND, message) from None
        if goal.state is not GoalState.MET:
            logger.warning("the goal %s is not met, this is the best package found: %s", goal.id, goal.reason)
    return package


def _tensorflow_hub(reason: str, alternative: str) -> Any:
    try:
        return importlib.import_module("tensorflow_hub")
    except ImportError as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"{reason}, which cannot be imported ({error}); "
            f"install it with pip install tensorflow tensorflow_hub 'setuptools<81', {alternative}",
        ) from error
