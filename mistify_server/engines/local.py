"""The engine for a single machine."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from mistify_server.engines.pooled_engine import DEADLINES, LEASES, PooledEngine
from mistify_server.engines.process import WorkerProcess
from mistify_server.engines.supervision import WorkerConnection
from mistify_server.tracing.traces import NO_TRACES, Traces


def worker_command(store: Path) -> list[str]:
    """Return the command that starts this package's worker for a store directory."""
    return [sys.executable, "-m", "mistify_server.worker", "--store", str(store)]


class LocalEngine(PooledEngine):
    """Worker processes on this machine.

    Args:
        command: The command that starts a worker.
        logs: Directory for the standard error of workers.
        slots: Number of concurrent tasks.
        leases: Kind of task -> seconds without a heartbeat after which a worker is given up.
        deadlines: Kind of task -> seconds after which it is stopped.
        traces: Records the tasks.
        prefix: Start of the names of workers.
    """

    def __init__(
        self,
        command: Sequence[str],
        logs: Path,
        slots: int = 1,
        leases: Mapping[str, float] = LEASES,
        deadlines: Mapping[str, float] = DEADLINES,
        *,
        traces: Traces = NO_TRACES,
        prefix: str = "",
    ) -> None:
        super().__init__(slots, leases, deadlines, traces, prefix)
        self._command = tuple(command)
        self._logs = logs

    @override
    async def _connect(self, name: str, environment: Mapping[str, str], *, spare: bool) -> WorkerConnection:
        return await WorkerProcess.start(self._command, self._logs / f"{name}.log", environment)

    @override
    async def _has_room(self) -> bool:
        return True
