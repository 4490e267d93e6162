"""A server with scripted workers, spoken to by HTTP."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest

from mistify_server.server import running_server

#: Opens a server with settings, and yields a client of its HTTP.
Serve = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def serve(site: Any) -> Serve:
    @asynccontextmanager
    async def served(**settings: object) -> AsyncIterator[httpx.AsyncClient]:
        chosen = site.settings(**{"http": "127.0.0.1:0", **settings})
        async with running_server(chosen) as (_, url), httpx.AsyncClient(base_url=url, timeout=60) as client:
            yield client

    return served


@pytest.fixture
async def web(serve: Serve) -> AsyncIterator[httpx.AsyncClient]:
    async with serve() as client:
        yield client
