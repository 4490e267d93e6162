"""Connections of clients that keep the server waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from mistify_server.store.sql.jobs import SqlJobStore
from mistify_server.web import connections, protocol, serving
from tests.mistify_server.web.conftest import Serve
from tests.support.gates import held

HEAD = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
READY = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n"
BODY = b"POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{"
LARGE = b"GET /static/plotly.js HTTP/1.1\r\nhost: localhost\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(web: httpx.AsyncClient, said: bytes, limit: int = 2**16) -> AsyncIterator[Streams]:
    reading, writing = await asyncio.open_connection(web.base_url.host, web.base_url.port, limit=limit)
    writing.write(said)
    try:
        yield reading, writing
    finally:
        writing.close()


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(protocol, "PROGRESS_SECONDS", 0.1)


@pytest.mark.parametrize("said", [b"", HEAD, BODY, BODY + b'"' * 998])
async def test_a_connection_with_an_incomplete_request_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    shorten(monkeypatch)
    async with serve() as web, connected(web, said) as (reading, _), asyncio.timeout(60):
        assert await reading.read() == b""


async def test_a_connection_with_an_incomplete_request_after_another_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is answered, however busy the server is when it comes."""
    async with serve() as web, asyncio.timeout(60):
        with held(SqlJobStore, "page") as gate:
            async with connected(web, READY + HEAD) as (reading, _):
                await asyncio.to_thread(gate.reached.wait)
                shorten(monkeypatch)
                gate.opened.set()
                answer = await reading.read()
    assert answer.count(b"HTTP/1.1 200 OK") == 1


async def test_a_connection_that_does_not_read_the_response_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    monkeypatch.setattr(protocol, "PROGRESS_SECONDS", 0.1)
    ended = []
    end = connections.Connections._end
    monkeypatch.setattr(connections.Connections, "_end", lambda of, task: (ended.append(task), end(of, task)))
    async with serve() as web, connected(web, LARGE * 20, limit=1_000) as (reading, _):
        await reading.readexactly(100)
        await wait_until(lambda: len(ended) == 1)


async def test_idle_connections_are_closed_for_new_ones(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "most_connections", lambda: 4)
    async with serve() as web:
        opened = [await connected(web, said).__aenter__() for said in (HEAD, BODY) * 8]
        assert (await web.get("/healthz")).status_code == 200
        assert all([not await reading.read() for reading, _ in opened[:12]])


async def test_connections_are_accepted_after_an_internal_error(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, errors = serving._Server.protocol, [MemoryError()]

    def failing_once(server: serving._Server) -> protocol.TimedProtocol:
        if errors:
            raise errors.pop()
        return made(server)

    monkeypatch.setattr(serving._Server, "protocol", failing_once)
    monkeypatch.setattr(connections, "_RETRY_SECONDS", 0.0)
    async with serve() as web, asyncio.timeout(60):
        with pytest.raises(httpx.TransportError):
            await web.get("/healthz")
        assert (await web.get("/healthz")).status_code == 200
    assert "a connection could not be accepted because of an internal error" in caplog.text
