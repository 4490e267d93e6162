"""Servers that join the main server of a store, and share its jobs."""

import asyncio
import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, Never

import psutil

from mistify.errors import ErrorCode, MistifyError
from mistify_server.engines.process import remove_scratch
from mistify_server.identity.callers import current_caller
from mistify_server.store.directory import Store, has_database
from mistify_server.store.tuning import Group

#: Interval between looks at the address of the main server, which may be started elsewhere.
_INTERVAL_SECONDS: Final = 5.0


class OnMainServer:
    """Stands for the coordinator of groups that tune together: only the main server has one.

    It only lists the groups. Every other use is refused with an error that names the main server.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._address = store.leases.main_address()

    def groups(self) -> list[Group]:
        """Return the groups of the caller's tenant."""
        return self._store.of(current_caller().tenant).tuning.groups()

    async def upkeep(self) -> Never:
        """Follow the address of the main server, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            with suppress(MistifyError):  # the store is away: the address stays
                self._address = await asyncio.to_thread(self._store.leases.main_address)

    def __getattr__(self, name: str) -> Never:
        """Refuse to be used.

        Raises:
            MistifyError: UNAVAILABLE.
        """
        address = self._address or "the one that was started without --join"
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"this server has joined others; groups that tune together are those of the main server: use "
            f"{address}",
        )


def address_for_others(bound: str) -> str:
    """Return the address of a server for other machines: with the name of this one if it listens on all."""
    host, _, port = bound.rpartition(":")
    return f"{socket.gethostname()}:{port}" if host in ("0.0.0.0", "[::]") else bound  # noqa: S104


def check_joinable(store: Path) -> None:
    """Check that a store has had a main server.

    Raises:
        MistifyError: CONFLICT.
    """
    if not has_database(store):
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"there is no store to join in {store}; start a server without --join first, and share its "
            "directory",
        )


def worker_prefix(listen: str) -> str:
    """Return the start of the names of a server's workers, whose logs are beside those of other servers.

    Args:
        listen: The address of the server; an invalid one is refused later.
    """
    port = listen.rpartition(":")[2]
    own = port if port.isdecimal() and int(port) else f"pid{os.getpid()}"  # 0 is any free port
    return f"{socket.gethostname()}-{own}-"


def remove_left_logs(logs: Path) -> None:
    """Remove the logs and temporary files of workers whose servers had any free port, and have ended.

    Other servers find those of the one before them under the same name.

    Args:
        logs: The directory of the logs of all servers; those of other machines stay.
    """
    name = re.compile(rf"{re.escape(socket.gethostname())}-pid(\d+)-.+\.log")
    for log in logs.glob("*.log"):
        match = name.fullmatch(log.name)
        if match is not None and not psutil.pid_exists(int(match[1])):
            remove_scratch(log)
            log.unlink(missing_ok=True)  # another server may remove it as well
