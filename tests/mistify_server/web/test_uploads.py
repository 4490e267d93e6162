"""Interrupted uploads over HTTP."""

import asyncio
import logging

import httpx
import pytest

from tests.mistify_server.web.test_metrics import figures


async def test_an_interrupted_upload_is_not_logged_as_a_server_error(
    web: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    _, writing = await asyncio.open_connection(web.base_url.host, web.base_url.port)
    head = f"PUT /v1/files/{'0' * 64} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    writing.write(head.encode() + b"x" * 10)
    await writing.drain()
    writing.close()
    await writing.wait_closed()
    async with asyncio.timeout(60):
        while not (status := await status_of_uploads(web)):
            pass
    assert status == ["499"]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def status_of_uploads(web: httpx.AsyncClient) -> list[str]:
    """Return the statuses of all completed upload requests."""
    counted = (await figures(web)).get("mistify_http_request_seconds_count", {})
    return [labels[-1] for labels in counted if labels[0] == "PUT"]
