"""Servers that join the main server of a store, and share its jobs."""

import os
import re
import socket
from pathlib import Path
from typing import Never

import psutil

from mistify.errors import ErrorCode, MistifyError
from mistify_server.engines.process import remove_scratch
from mistify_server.store.directory import has_database


class OnMainServer:
    """Stands for a service of devices, which only the main server has: every use is refused."""

    def __getattr__(self, name: str) -> Never:
        """Refuse to be used.

        Raises:
            MistifyError: UNAVAILABLE.
        """
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            "this server has joined others, and only runs jobs; devices, roll-outs and groups that tune "
            "together are those of the main server, which was started without --join: use its address",
        )


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
