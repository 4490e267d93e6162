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
    with served_at(store, token=token) as (_, url):
        yield url


@contextmanager
def served_at(
    store: Path, listen: str = "127.0.0.1:0", *, token: str | None = None
) -> Iterator[tuple[str, str]]:
    """Serve a store within the block, and yield the address and the URL."""
    settings = ServerSettings(store, listen=listen, http="127.0.0.1:0", token=token, resume=False)
    started, loop = threading.Event(), asyncio.new_event_loop()
    address, url, stopping = "", "", asyncio.Event()

    async def run() -> None:
        nonlocal address, url
        async with running_server(settings) as bound:
            address, url = bound[0], str(bound[1])
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
        yield address, url
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()
