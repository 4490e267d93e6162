"""The engine for a Ray cluster."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import ray
from ray.exceptions import RayError
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify_server.engines.local import worker_command
from mistify_server.engines.pooled_engine import ATTEMPTS, DEADLINES, LEASES, PooledEngine
from mistify_server.engines.process import WorkerProcess
from mistify_server.engines.supervision import WorkerConnection, WorkerCrashed, WorkerDied, WorkerNotStarted
from mistify_server.store.objects.binding import Binding, binding_of, record_binding
from mistify_server.tracing.traces import NO_TRACES, Traces

#: Seconds for an actor to kill its worker before the actor itself is killed.
_KILL_SECONDS = 10.0
_SHOWN_CHARACTERS = 300

#: Errors that Ray raises for a lost cluster, depending on how it notices the loss.
_LOST = (ConnectionError, RuntimeError, ValueError, RayError, grpc.RpcError)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[int]:
    """Connect to a Ray cluster within the block, and yield its number of CPUs.

    A process can have only one such connection.

    Args:
        address: `ray://HOST:PORT` of a cluster, or `local` for one on this machine that ends with the block.

    Raises:
        MistifyError: UNAVAILABLE, the cluster cannot be reached or started.
    """
    # A cluster started here sends no usage reports, unless the operator wants it to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        await _join(address)
    except (OSError, RuntimeError, RayError) as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"Ray at {address} cannot be used: {_short(error)}; check that it is running, and that "
            "RAY_AUTH_TOKEN (or ~/.ray/auth_token) matches",
        ) from error
    _keep_sigterm()
    try:
        # A cluster may start without CPUs and add some on demand.
        yield max(1, int((await asyncio.to_thread(ray.cluster_resources)).get("CPU", 0)))
    finally:
        await asyncio.to_thread(ray.shutdown)


async def _join(address: str) -> None:
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    begin = partial(ray.init, address=address, log_to_driver=False, logging_level="WARNING", **options)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            # Use a thread: this takes seconds, and on the main thread Ray would install a SIGTERM
            # handler.
            await asyncio.to_thread(begin)
        except ConnectionAbortedError:
            # The cluster forks a process per client, and some of these die immediately.
            if attempt == ATTEMPTS:
                raise
        else:
            return


def _keep_sigterm() -> None:
    """Replace Ray's SIGTERM handler, which prints a stack trace and aborts if this takes too long."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


class RayEngine(PooledEngine):
    """Worker processes on the machines of the Ray cluster to which this process is connected.

    Each worker has an actor on its machine that starts it and forwards lines. So TensorFlow runs in a
    separate process, as on a single machine: it can hang or crash without the actor, and the actor can kill
    it. The server, not the actor, manages attempts, leases and tickets, so results from a disconnected
    machine are discarded. Ray never restarts actors; a new one starts wherever there is room when a task
    needs it.

    All machines share the data roots and the store's directory, and nothing else. With artifacts in a bucket,
    each machine may have a store's directory of its own under the same path.

    Args:
        store: The server's store directory.
        command: The command that starts a worker; None for the default, with the Python that runs the actor.
        slots: Number of concurrent tasks, each on one CPU of the cluster.
        leases: Kind of task -> seconds without a heartbeat after which a worker is given up.
        deadlines: Kind of task -> seconds after which it is stopped.
        traces: Records the tasks.
        prefix: Start of the names of workers.
    """

    def __init__(
        self,
        store: Path,
        command: Sequence[str] | None = None,
        slots: int = 1,
        leases: Mapping[str, float] = LEASES,
        deadlines: Mapping[str, float] = DEADLINES,
        *,
        traces: Traces = NO_TRACES,
        prefix: str = "",
    ) -> None:
        super().__init__(slots, leases, deadlines, traces, prefix)
        self._store = store
        self._command = None if command is None else tuple(command)

    @override
    async def _connect(self, name: str, environment: Mapping[str, str], *, spare: bool) -> WorkerConnection:
        host = ray.remote(_Host).options(num_cpus=0 if spare else 1, scheduling_strategy="SPREAD")
        binding = await asyncio.to_thread(binding_of, self._store)
        with _loss_translated():
            actor = await asyncio.to_thread(
                host.remote, self._store, self._command, name, environment, binding
            )
        connection = _RemoteWorker(actor)
        try:
            await connection.start()
        except BaseException:
            await connection.kill()
            raise
        return connection

    @override
    async def _has_room(self) -> bool:
        with _loss_translated():
            free = await asyncio.to_thread(ray.available_resources)
        return bool(free.get("CPU", 0) >= 1)


@contextmanager
def _loss_translated() -> Iterator[None]:
    try:
        yield
    except _LOST as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE, f"the connection to the Ray cluster was lost: {_short(error)}"
        ) from error


class _Host:
    """Actor that starts a worker on its machine and forwards lines.

    Failures of the worker are returned as text; only the loss of the actor itself is an exception.

    Args:
        binding: The bucket with the artifacts of the store, whose directory need not exist on this machine;
            None if they are in this directory.
    """

    def __init__(
        self,
        store: Path,
        command: Sequence[str] | None,
        name: str,
        environment: Mapping[str, str],
        binding: Binding | None,
    ) -> None:
        self._store, self._binding = store, binding
        self._command = command or worker_command(store)
        self._environment = dict(environment)
        self._log = store / "logs" / f"{name}.log"
        self._process: WorkerProcess | None = None

    async def start(self) -> str:
        """Start the worker; return the reason if this fails, otherwise an empty text."""
        try:
            if self._binding is not None:
                record_binding(self._store, self._binding)
            self._process = await WorkerProcess.start(self._command, self._log, self._environment)
        except (WorkerDied, MistifyError) as error:
            return str(error)
        return ""

    async def alive(self) -> bool:
        return self._process is not None and await self._process.alive()

    async def send(self, line: bytes) -> None:
        await self._worker().send(line)

    async def receive(self) -> tuple[bytes, str, int | None]:
        """Return the next line, or else the reason why no more will come and, if known, the exit code."""
        try:
            return await self._worker().receive(), "", None
        except WorkerCrashed as error:
            return b"", str(error), error.exit_code
        except WorkerDied as error:
            return b"", str(error), None

    async def log_tail(self) -> str:
        return await self._worker().log_tail()

    async def kill(self) -> None:
        if self._process is not None:
            await self._process.kill()

    def _worker(self) -> WorkerProcess:
        if self._process is None:
            raise WorkerDied("the worker was never started")
        return self._process


class _RemoteWorker(WorkerConnection):
    """A worker on another machine, reached through its actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._placed = False

    async def start(self) -> None:
        """Wait until Ray has placed the actor, and start the worker there."""
        reason = await self._call("start")
        self._placed = True
        if reason:
            raise WorkerNotStarted(reason)

    @override
    async def alive(self) -> bool:
        return bool(await self._call("alive"))

    @override
    async def send(self, line: bytes) -> None:
        await self._call("send", line)

    @override
    async def receive(self) -> bytes:
        line, reason, exit_code = await self._call("receive")
        if exit_code is not None:
            raise WorkerCrashed(exit_code)
        if reason:
            raise WorkerDied(reason)
        return bytes(line)

    @override
    async def log_tail(self) -> str:
        return str(await self._call("log_tail"))

    @override
    async def kill(self) -> None:
        if self._placed:
            with suppress(TimeoutError, WorkerDied):
                async with asyncio.timeout(_KILL_SECONDS):
                    await self._call("kill")
        with suppress(*_LOST):
            await asyncio.to_thread(ray.kill, self._actor)

    async def _call(self, method: str, *arguments: object) -> Any:
        try:
            reply = asyncio.wrap_future(getattr(self._actor, method).remote(*arguments).future())
            reply.add_done_callback(_forget)
            # Ray's client stops working when a reply arrives for a cancelled future.
            return await asyncio.shield(reply)
        except _LOST as error:
            raise WorkerDied(f"the worker's actor was lost: {_short(error)}") from error


def _forget(reply: "asyncio.Future[object]") -> None:
    """Retrieve the exception of an abandoned call."""
    if not reply.cancelled():
        reply.exception()


def _short(error: Exception) -> str:
    """Return the last line of an error, which contains Ray's reason."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1][:_SHOWN_CHARACTERS]
