"""A server in a thread of this process, which resumes no jobs."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mistify_server.server import ServerSettings, running_server


@contextmanager
def served(store: Path, token: str | None = None) -> Iterator[str]:
    """Serve a store over HTTP within the block, and yield the URL."""
    settings = ServerSettings(store, listen="127.0.0.1:0", http="127.0.0.1:0", token=token, resume=False)
    started, loop = threading.Event(), asyncio.new_event_loop()
    url, stopping = "", asyncio.Event()

    async def run() -> None:
        nonlocal url
        async with running_server(settings) as (_, address):
            url = str(address)
            started.set()
            await stopping.wait()

    def serve() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            started.set()

    thread = threading.Thread(target=serve)
    thread.start()
    started.wait()
    try:
        assert url, "the server has not started"
        yield url
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()
