"""A server whose database is another program never lets its event loop wait for it."""

from collections.abc import Callable
from typing import Any

import grpc
import httpx
import pytest

from mistify.jobs.job import JobState
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.server import running_server
from mistify_server.store.directory import open_store
from mistify_server.store.sql.backend import Backend
from mistify_server.store.sql.sqlite import SqliteBackend
from tests.support.calls import described_calls, status_of
from tests.support.gates import kept_off_event_loops

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4

#: Pages, which OpenAPI does not describe.
PAGES = ("/", "/submit", "/fleet", "/tokens", "/login", "/compare")


async def test_no_first_call_of_a_new_tenant_is_made_on_the_event_loop(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteBackend, "remote", True)
    methods = described_calls()
    first = {
        "red": "/mistify.v1.Devices/ReportStatus",
        "blue": "/mistify.v1.Rollouts/ListRollouts",
        "green": "/v1/fleet",
        "white": "/v1/rollouts",
    }
    async with (
        running_server(site.settings(http="127.0.0.1:0", token=TOKEN)) as (address, url),
        httpx.AsyncClient(base_url=str(url), timeout=60) as web,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with open_store(site.store) as store:
            secrets = {
                tenant: create_token(store.of(tenant).tokens, "ci", [Scope.ADMIN])[1] for tenant in first
            }
        with kept_off_event_loops(Backend, "translated"):
            for tenant, path in first.items():
                if path in methods:
                    await status_of(channel, path, methods[path], secrets[tenant])
                else:
                    sent = {"authorization": f"Bearer {secrets[tenant]}"}
                    assert (await web.get(path, headers=sent)).status_code == 200


async def test_no_call_is_made_on_the_event_loop(
    site: Any, call_at: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteBackend, "remote", True)
    with open_store(site.store) as store:
        _, secret = create_token(store.tokens, "ci", [Scope.ADMIN])
    sent = {"authorization": f"Bearer {secret}"}
    async with (
        running_server(site.settings(http="127.0.0.1:0", token=TOKEN)) as (address, url),
        httpx.AsyncClient(base_url=str(url), timeout=60, headers=sent) as web,
        grpc.aio.insecure_channel(address) as channel,
    ):
        caller = call_at(address, secret)
        with kept_off_event_loops(Backend, "translated"):
            job = await caller.submit([make_config("a", FLOP="0.5x")])
            await caller.add(job.id, [make_config("b", FLOP="0.4x")])
            assert (await caller.finished(job.id)).state is JobState.DONE
            for path, method in described_calls().items():
                await status_of(channel, path, method, secret)
            described = (await web.get("/openapi.json")).json()["paths"]
            routes = [(method, path) for path, methods in described.items() for method in methods]
            for method, path in sorted(routes, key=lambda route: route[0] != "get"):
                filled = path.replace("{job_id}", job.id).replace("{goal_id}", "a")
                await web.request(method, filled.replace("{", "").replace("}", ""))
            for page in (*PAGES, f"/jobs/{job.id}", f"/jobs/{job.id}/goals/a", f"/jobs/{job.id}/add"):
                await web.get(page)
        await caller.channel.close()
