"""Calls that are open when the token of their caller is revoked or expires."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.v1 import files_pb2, files_pb2_grpc
from mistify_server.identity import open_calls
from mistify_server.identity.authentication import Authenticator, Credential, create_token
from mistify_server.identity.callers import Scope
from mistify_server.identity.open_calls import OpenCalls
from mistify_server.server import running_server
from mistify_server.store.directory import Store, open_store

ADMINISTRATOR = "a" * 40


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_calls, "_INTERVAL_SECONDS", 0.02)


async def test_watchers_and_uploads_end_with_their_token_and_others_go_on(
    site: Any, call_at: Any, make_config: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with running_server(site.settings(token=ADMINISTRATOR, http="127.0.0.1:0")) as (address, url):
        with open_store(site.store) as store:
            _, secret = create_token(store.tokens, "ci", [Scope.READ, Scope.SUBMIT])
        administrator, caller = call_at(address, ADMINISTRATOR), call_at(address, secret)
        job = await administrator.submit([make_config("a", FLOP="0.5x")])
        watching = asyncio.create_task(caller.events(job.id))
        staying = asyncio.create_task(administrator.events(job.id))
        reached = asyncio.Event()
        uploads = files_pb2_grpc.FilesStub(caller.channel)
        uploading = uploads.UploadFile(endless(reached), metadata=caller.metadata)
        async with httpx.AsyncClient(base_url=str(url), timeout=60) as web:
            headers = {"authorization": f"Bearer {secret}"}
            async with web.stream("GET", f"/v1/jobs/{job.id}/events", headers=headers) as events:
                assert events.status_code == 200
                await reached.wait()
                with open_store(site.store) as store:
                    store.tokens.revoke("ci")
                for call in (watching, uploading):
                    with pytest.raises((MistifyError, grpc.RpcError)) as raised:
                        await call
                    assert "expired" in str(raised.value)
                with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
                    await events.aread()
            assert (await web.get("/v1/jobs", headers=headers)).status_code == 401
        assert not staying.done()
        (site.control / "hold-adapt").unlink()
        await staying
        for each in (administrator, caller):
            await each.channel.close()


async def endless(reached: asyncio.Event) -> AsyncIterator[Any]:
    file = files_pb2.FileDigest(sha256="0" * 64, size=10**6)
    yield files_pb2.UploadFileRequest(header=files_pb2.UploadHeader(file=file))
    reached.set()
    await asyncio.Event().wait()


async def test_a_call_ends_when_its_token_expires(store: Store) -> None:
    now = time.time()
    authenticator = Authenticator(ADMINISTRATOR, store.tokens, lambda: now)
    calls = OpenCalls(authenticator)
    _, secret = create_token(store.tokens, "ci", [Scope.READ], days=1)
    checking = asyncio.create_task(calls.keep_checking())
    with calls.begun(Credential.of(secret)) as call, calls.begun(Credential.of(ADMINISTRATOR)) as other:
        with pytest.raises(TimeoutError):  # that of the block
            async with call.waiting(), asyncio.timeout(0.1):
                await asyncio.Event().wait()
        now += 2 * 86_400
        async with asyncio.timeout(60):
            with pytest.raises(MistifyError, match="expired"):
                async with call.waiting():
                    await asyncio.Event().wait()
        with pytest.raises(MistifyError, match="expired"):
            async with call.waiting():
                pass
        async with other.waiting():
            await asyncio.sleep(0)
        assert not other.ended
    checking.cancel()


async def test_calls_stay_while_tokens_cannot_be_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def unavailable(*_: object) -> None:
        asked.set()
        raise MistifyError(ErrorCode.UNAVAILABLE, "the database is away")

    monkeypatch.setattr(Authenticator, "caller", unavailable)
    calls = OpenCalls(Authenticator(ADMINISTRATOR, store.tokens))
    checking = asyncio.create_task(calls.keep_checking())
    with calls.begun(Credential.of("x")) as call:
        await asked.wait()
        async with call.waiting():
            await asyncio.sleep(0)
    assert not checking.done()
    checking.cancel()
