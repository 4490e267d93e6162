"""Two processes of servers that share a database."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.postgresql import Cluster

_SCRIPT: Final = Path(__file__).parent / "scripted_server.py"

#: Length of a lease in seconds.
_LEASE: Final = "0.6"


@dataclass(frozen=True)
class Server:
    caller: Any
    process: asyncio.subprocess.Process


@asynccontextmanager
async def server(site: Any, call_at: Any, database: str, *options: str) -> AsyncIterator[Server]:
    command = [sys.executable, str(_SCRIPT), "--store", str(site.store)]
    where = ("--root", str(site.root), "--database", database, "--lease", _LEASE)
    process = await asyncio.create_subprocess_exec(
        *command, *where, *options, "--", *site.worker, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    address = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
    caller = call_at(address)
    try:
        yield Server(caller, process)
    finally:
        await caller.channel.close()
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            await process.wait()


@asynccontextmanager
async def two_servers(site: Any, call_at: Any, cluster: Cluster) -> AsyncIterator[tuple[Server, Server]]:
    database = cluster.new_database()
    async with (
        server(site, call_at, database) as main,
        server(site, call_at, database, "--join") as joined,
    ):
        yield main, joined
