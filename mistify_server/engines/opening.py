"""Opening of engines by name."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify_server.engines.base import TaskEngine
from mistify_server.engines.local import LocalEngine, worker_command
from mistify_server.tracing.traces import NO_TRACES, Traces

_REMOTE = "ray://"


@asynccontextmanager
async def open_engine(
    name: str,
    store: Path,
    command: Sequence[str] | None = None,
    slots: int | None = None,
    prefix: str = "",
    *,
    traces: Traces = NO_TRACES,
) -> AsyncIterator[TaskEngine]:
    """Open an engine within the block.

    Args:
        name: `local`; `ray` for a local Ray cluster, which ends with the block; or `ray://HOST:PORT`.
        store: The server's store directory.
        command: The command that starts a worker; None for the default.
        slots: Number of concurrent tasks; None for one, or, with Ray, all CPUs of the cluster.
        prefix: Start of the names of workers, for a server that shares the store with others.
        traces: Records the tasks.

    Raises:
        MistifyError: INVALID_CONFIG, there is no such engine, or it is not installed; UNAVAILABLE, it
            cannot be reached.
    """
    if name == "local":
        worker = command or worker_command(store)
        async with _closing(
            LocalEngine(worker, store / "logs", slots or 1, traces=traces, prefix=prefix)
        ) as engine:
            yield engine
    elif name == "ray" or name.startswith(_REMOTE):
        address = "local" if name == "ray" else name
        async with _open_ray(address, store, command, slots, prefix, traces=traces) as engine:
            yield engine
    else:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f'got the engine "{name}"; expected local, ray or ray://HOST:PORT; omit --engine for local',
        )


@asynccontextmanager
async def _open_ray(
    address: str,
    store: Path,
    command: Sequence[str] | None,
    slots: int | None,
    prefix: str,
    *,
    traces: Traces,
) -> AsyncIterator[TaskEngine]:
    try:
        from mistify_server.engines.ray import RayEngine, connected  # noqa: PLC0415 (optional, seconds to import)
    except ModuleNotFoundError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            "this engine needs Ray, which is not installed; run pip install 'mistify-porting[ray]'",
        ) from error
    async with (
        connected(address) as cpus,
        _closing(RayEngine(store, command, slots or cpus, traces=traces, prefix=prefix)) as engine,
    ):
        yield engine


@asynccontextmanager
async def _closing(engine: TaskEngine) -> AsyncIterator[TaskEngine]:
    try:
        yield engine
    finally:
        await engine.close()
