"""What belongs to a tenant is unknown to others: every call and every route that takes an id says so."""

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from fastapi import FastAPI

from mistify.costs.devices import Device, DeviceTable
from mistify.errors import MistifyError
from mistify.fleet import DeviceReport
from mistify.jobs.job import JobState
from mistify.v1 import devices_pb2
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.server import running_server
from mistify_server.store.directory import open_store
from mistify_server.tuning.groups import add_group
from mistify_server.web import app as web_app_module
from tests.mistify_server.web.tenants import (
    ANSWERED,
    BODIES,
    CONTENT,
    FILES,
    IN_PATHS,
    IN_QUERIES,
    MOMENT,
    NO_IDS_IN_QUERIES,
    PUBLIC_ROUTES,
    SCALES,
    TOKEN,
    UNKNOWN,
    WITHOUT_IDS,
    Config,
    Ids,
    Tenants,
    addressed,
    as_for,
    bearer,
    filled,
    requests,
)
from tests.support.calls import described_calls
from tests.support.fleets import JOB, PACKAGE, device
from tests.support.published import publish
from tests.support.signed_packages import write_package


@pytest.fixture
async def tenants(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenants]:
    publish(site.store, JOB, [write_package(tmp_path / "phone-2", {"serve.tflite": b"network"})], "red")
    with open_store(site.store) as store:
        red, blue = (
            create_token(store.of(tenant).tokens, "boss", [Scope.ADMIN])[1] for tenant in ("red", "blue")
        )
        own = store.of("red")
        create_token(own.tokens, "red-worker", [Scope.READ])
        table = DeviceTable("red-board", "A72", "LiteRT", ())
        own.devices.put(Device("red-board", "A72", "LiteRT", (), MOMENT), table, [])
        own.fleet.put([DeviceReport(device("red-hall"), MOMENT)])
        add_group(
            store.tuning, "red-home", job_id=JOB, batch=0, correlation="spatiotemporal", settings_text=SCALES
        )
    made: list[FastAPI] = []
    make = web_app_module.web_app
    monkeypatch.setattr(
        web_app_module, "web_app", lambda *arguments: made.append(make(*arguments)) or made[-1]
    )
    settings = site.settings(token=TOKEN, http="127.0.0.1:0")
    async with (
        running_server(settings) as (address, url),
        grpc.aio.insecure_channel(address) as channel,
        httpx.AsyncClient(base_url=str(url), timeout=60) as web,
    ):
        digest = hashlib.sha256(CONTENT).hexdigest()
        assert (await web.put(f"/v1/files/{digest}", content=CONTENT, headers=bearer(red))).is_success
        new = {"job_id": JOB, "goal_id": "phone-2", "package": PACKAGE, "stages": [1]}
        started = await web.post("/v1/rollouts", json=new, headers=bearer(red))
        ids = Ids(JOB, started.json()["rollout"]["id"], "red-board", "red-home", "red-worker", digest)
        yield Tenants(address, channel, web, made[0], red, blue, ids)


def test_every_call_takes_ids_that_are_tested_or_none() -> None:
    without = {f"/mistify.v1.{service}/{call}" for service, calls in WITHOUT_IDS.items() for call in calls}
    tested = set(requests(UNKNOWN))
    assert without | tested == set(described_calls())
    assert not without & tested


async def test_calls_with_ids_of_another_tenant_answer_as_with_unknown_ids(tenants: Tenants) -> None:
    known, unknown = requests(tenants.ids), requests(UNKNOWN)
    for path, request in known.items():
        status, message = await tenants.called(path, request, tenants.blue)
        assert (status, as_for(message, tenants.ids)) == await tenants.called(
            path, unknown[path], tenants.blue
        ), path
        assert (status is grpc.StatusCode.NOT_FOUND) is (path not in ANSWERED), (path, status, message)
        if path not in ANSWERED:  # they are there, for their own tenant
            assert await tenants.called(path, request, tenants.red) != (status, message), path


async def test_members_stay_in_their_group_when_another_tenant_says_they_leave(tenants: Tenants) -> None:
    join, leave = (f"/mistify.v1.Tuning/{call}" for call in ("Join", "Leave"))
    peers = "/mistify.v1.Tuning/Peers"
    known = requests(tenants.ids)
    assert (await tenants.called(join, known[join], tenants.red))[0] is grpc.StatusCode.OK
    member = await tenants.called(peers, known[peers], tenants.red)
    assert "you have no peers yet" in member[1]
    await tenants.called(leave, known[leave], tenants.blue)
    assert await tenants.called(peers, known[peers], tenants.red) == member
    await tenants.called(leave, known[leave], tenants.red)
    assert "you are not a member" in (await tenants.called(peers, known[peers], tenants.red))[1]


async def test_every_parameter_of_a_route_is_tested_or_no_id(tenants: Tenants) -> None:
    for route in tenants.routes():
        if route.path.startswith(PUBLIC_ROUTES):
            continue
        assert {field.name for field in route.dependant.path_params} <= IN_PATHS, route.path
        queries = {field.name for field in route.dependant.query_params}
        assert queries <= IN_QUERIES | NO_IDS_IN_QUERIES, route.path
    assert len(tenants.with_path_parameters()) > 25


async def test_routes_with_ids_of_another_tenant_answer_as_with_unknown_ids(tenants: Tenants) -> None:
    ids = tenants.ids
    tried = [
        (method, *(filled(path, of) for of in (ids, UNKNOWN)), *2 * [BODIES.get((method, path), {})])
        for method, path in tenants.with_path_parameters()
        if path != FILES
    ]
    tried += [
        (method, path, unknown, body, other)
        for (method, path, body), (_, unknown, other) in zip(addressed(ids), addressed(UNKNOWN), strict=True)
    ]
    answers = {}
    for method, path, unknown, body, other in tried:
        status, content = await tenants.requested(method, path, tenants.blue, **body)
        expected = await tenants.requested(method, unknown, tenants.blue, **other)
        assert (status, as_for(content, ids)) == expected, (method, path)
        assert status == 404, (method, path, status, content)
        answers[method, path] = content
    for method, path, _, body, _ in tried:  # they are there, for their own tenant
        status, content = await tenants.requested(method, path, tenants.red, **body)
        assert content != answers[method, path], (method, path, status)


async def test_another_tenant_sees_nothing_in_lists_and_pages(tenants: Tenants) -> None:
    for path in (
        *("/v1/jobs", "/v1/jobs?removed=true", f"/v1/jobs?search={JOB}", "/v1/devices", "/v1/fleet"),
        *("/v1/groups", "/v1/rollouts", "/v1/tokens", "/", "/fleet", "/tokens", "/compare"),
    ):
        _, seen = await tenants.requested("GET", path, tenants.red)
        _, hidden = await tenants.requested("GET", path, tenants.blue)
        own = [JOB, tenants.ids.rollout, "red-board", "red-hall", "red-home", "red-worker"]
        assert [text for text in own if text in hidden] == [], path
        assert any(text in seen for text in own) or "removed" in path, path


async def test_metrics_and_the_machine_of_the_server_are_for_the_operators_tenant(tenants: Tenants) -> None:
    status, content = await tenants.requested("GET", "/metrics", tenants.red)
    assert (status, "use a token of the tenant default" in content) == (403, True)
    assert (await tenants.requested("GET", "/metrics", TOKEN))[0] == 200
    register = "/mistify.v1.Devices/RegisterDevice"
    table = devices_pb2.DeviceTable(name="host", machine="A72", runtime="LiteRT")
    answers = [await tenants.called(register, table, secret) for secret in (tenants.red, TOKEN)]
    assert [status is grpc.StatusCode.PERMISSION_DENIED for status, _ in answers] == [True, False]


async def test_an_upload_is_only_there_for_its_tenant(tenants: Tenants, site: Any) -> None:
    address = filled(FILES, tenants.ids)
    states = [await tenants.requested("GET", address, secret) for secret in (tenants.red, tenants.blue)]
    assert [json.loads(text)["complete"] for _, text in states] == [True, False]
    goal = {
        "id": "a",
        "model": f"upload:{tenants.ids.upload}/model.json",
        "dataset": {"train": "train.json", "test": "test.json"},
        "adaptation_goal": {"FLOP": "0.5x"},
    }
    unknown = {**goal, "model": f"upload:{UNKNOWN.upload}/model.json"}
    for path in ("/v1/plans", "/v1/jobs"):
        status, refused = await tenants.requested("POST", path, tenants.blue, json=[goal])
        expected = await tenants.requested("POST", path, tenants.blue, json=[unknown])
        assert (status, as_for(refused, tenants.ids)) == expected
        assert (status, "an upload that the server has" in refused) == (400, True)
    assert (await tenants.requested("PUT", address, tenants.blue, content=CONTENT))[0] == 200
    kept = list((site.store / "uploads").rglob(f"files/*/{tenants.ids.upload}"))
    assert len(kept) == 2


async def test_an_idempotency_key_is_only_known_to_its_tenant(tenants: Tenants, make_config: Config) -> None:
    goals = json.dumps([make_config("a", FLOP="0.5x")])
    more = json.dumps([make_config("b", FLOP="0.4x")])

    async def submitted(secret: str, content: str) -> httpx.Response:
        headers = {**bearer(secret), "idempotency-key": "same"}
        return await tenants.web.post("/v1/jobs", content=content, headers=headers)

    red = (await submitted(tenants.red, goals)).json()["job"]["id"]
    blue = (await submitted(tenants.blue, goals)).json()["job"]["id"]
    assert red != blue
    assert (await submitted(tenants.blue, goals)).json()["job"]["id"] == blue
    assert (await submitted(tenants.blue, more)).status_code == 409


async def test_tokens_of_a_tenant_are_those_of_its_administrator(tenants: Tenants) -> None:
    name = tenants.ids.token
    new = {"name": name, "scopes": ["read"]}
    made = await tenants.web.post("/v1/tokens", json=new, headers=bearer(tenants.blue))
    assert made.status_code == 201, "red has a token of this name"
    caller = (await tenants.web.get("/v1/caller", headers=bearer(made.json()["token"]))).json()
    assert (caller["name"], caller["tenant"]) == (name, "blue")
    status, _ = await tenants.requested(
        "POST", "/v1/tokens", tenants.blue, json={**new, "name": "spy", "tenant": "red"}
    )
    assert status == 422
    assert (await tenants.requested("DELETE", f"/v1/tokens/{name}", tenants.blue))[0] == 204
    _, listed = await tenants.requested("GET", "/v1/tokens", tenants.red)
    assert [token["name"] for token in json.loads(listed)] == ["boss", name]
    page = (await tenants.requested("GET", "/tokens", tenants.red))[1]
    assert "Each caller of the tenant <b>red</b>" in page
    assert "administrator" not in page


async def test_devices_of_a_tenant_follow_its_roll_outs_only(tenants: Tenants) -> None:
    report = "/mistify.v1.Devices/ReportStatus"
    status = devices_pb2.DeviceStatus(
        name="red-hall",
        job_id=JOB,
        goal_id=PACKAGE,
        option="branch-0",
        options=1,
        latency_ms=4.0,
        expected_ms=4.0,
        fits=True,
        rollouts=devices_pb2.DeviceRollouts(package=PACKAGE),
    )

    async def wanted(secret: str) -> str:
        call = tenants.channel.unary_unary(
            report,
            request_serializer=devices_pb2.DeviceStatus.SerializeToString,
            response_deserializer=devices_pb2.ReportStatusResponse.FromString,
        )
        answer = await call(status, metadata=(("authorization", f"Bearer {secret}"),))
        return str(answer.wanted.rollout)

    assert [await wanted(secret) for secret in (tenants.red, tenants.blue)] == [tenants.ids.rollout, ""]
    fleets = [
        [each["status"]["name"] for each in json.loads(text)["devices"]]
        for secret in (tenants.red, tenants.blue, TOKEN)
        for _, text in [await tenants.requested("GET", "/v1/fleet", secret)]
    ]
    assert fleets == [["red-hall"], ["red-hall"], []]


async def test_nothing_that_another_tenant_tries_changes_a_running_job(
    tenants: Tenants, site: Any, make_config: Config, call_at: Any
) -> None:
    (site.control / "hold-source").touch()
    red = call_at(tenants.address, tenants.red)
    job = await red.submit([make_config("a", FLOP="0.5x")], name="own")
    async for event in red.watch(job.id):
        if event.event is JobState.RUNNING:
            break

    async def kept() -> tuple[object, ...]:
        now = await red.job(job.id)
        return now.state, now.name, now.removed_unix_ms, [(goal.id, goal.state) for goal in now.goals]

    before = await kept()
    ids = replace(tenants.ids, job=job.id, goal="a")
    for path, request in requests(ids).items():
        await tenants.called(path, request, tenants.blue)
        assert await kept() == before, path
    for method, path in tenants.with_path_parameters():
        await tenants.requested(method, filled(path, ids), tenants.blue, **BODIES.get((method, path), {}))
        assert await kept() == before, (method, path)
    (site.control / "hold-source").unlink()
    assert (await red.finished(job.id)).state is JobState.DONE
    await red.channel.close()


async def test_watchers_share_no_events_with_another_tenant(
    tenants: Tenants, site: Any, make_config: Config, call_at: Any, wait_until: Any
) -> None:
    (site.control / "hold-source").touch()
    red, blue = (call_at(tenants.address, secret) for secret in (tenants.red, tenants.blue))
    job = await red.submit([make_config("a", FLOP="0.5x")])
    await wait_until(lambda: len(site.tasks("source")) == 1)
    last = [event.sequence async for event in red.watch(job.id, so_far=True)][-1]
    watching = red.watch(job.id, last - 1)
    assert (await anext(watching)).sequence == last
    for after in range(last + 1):
        with pytest.raises(MistifyError, match=f'there is no job "{job.id}"'):
            [event async for event in blue.watch(job.id, after, so_far=True)]
    (site.control / "hold-source").unlink()
    assert [event async for event in watching]
    for caller in (red, blue):
        await caller.channel.close()


async def test_who_calls_says_the_tenant(tenants: Tenants) -> None:
    for secret, tenant in ((tenants.red, "red"), (TOKEN, "default")):
        assert json.loads((await tenants.requested("GET", "/v1/caller", secret))[1])["tenant"] == tenant
