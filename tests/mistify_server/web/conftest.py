"""A server with scripted workers, called over HTTP."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest

from mistify_server.server import running_server

#: Starts a server with settings, and yields an HTTP client.
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
