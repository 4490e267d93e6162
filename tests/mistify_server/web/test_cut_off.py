"""Requests that are not answered yet when the server stops."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI

from mistify_server.web import serving
from mistify_server.web.cut_off import CutOffMiddleware


async def test_a_request_that_the_end_cuts_off_may_be_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()
    app = FastAPI()
    app.add_middleware(CutOffMiddleware)

    @app.get("/")
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(serving, "_GRACE", 0)
    async with httpx.AsyncClient(timeout=60) as client:
        async with serving.serve_http(app, "127.0.0.1:0") as url:
            request = asyncio.create_task(client.get(url))
            await begun.wait()
        response = await request
    assert (response.status_code, response.json()["code"]) == (503, "UNAVAILABLE")
    assert "Traceback" not in caplog.text
