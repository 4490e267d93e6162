"""Roll-outs over HTTP."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from mistify.rollouts import InstallationPhase
from mistify_client.rpc.devices import DevicesClient
from mistify_client.rpc.rollouts import RolloutsClient
from mistify_server.rollouts import reports
from mistify_server.server import running_server
from tests.support.fleets import JOB, after, device
from tests.support.published import publish
from tests.support.signed_packages import write_package

TOKEN = "0123456789abcdef" * 4
NEW = {"job_id": JOB, "goal_id": "phone-2", "package": "phone"}


@pytest.fixture
def published(site: Any, tmp_path: Path) -> None:
    publish(site.store, JOB, [write_package(tmp_path / "phone-2", {"serve.tflite": b"network"})])


@pytest.mark.usefixtures("published")
async def test_a_roll_out_is_started_and_changed(serve: Any) -> None:
    async with serve() as web:
        made = await web.post("/v1/rollouts", json={**NEW, "stages": [0.5, 1], "latency": None})
        assert made.status_code == 201
        progress = made.json()
        rollout = progress["rollout"]
        assert made.headers["location"] == f"/v1/rollouts/{rollout['id']}"
        assert (rollout["state"], rollout["stages"], rollout["started_by"]) == (
            "running",
            [0.5, 1.0],
            "local",
        )
        assert rollout["criteria"] == {
            "after_seconds": 3600.0,
            "devices": 1,
            "errors": 0.05,
            "latency": None,
            "agreement": 0.7,
        }
        assert (await web.get("/v1/rollouts")).json() == [progress]
        assert (await web.get(made.headers["location"])).json() == progress
        for action, state in (("pause", "paused"), ("resume", "running"), ("back", "rolled back")):
            changed = await web.post(f"{made.headers['location']}/{action}")
            assert (changed.status_code, changed.json()["rollout"]["state"]) == (200, state)
        assert (await web.post(f"{made.headers['location']}/back")).json() == changed.json()
        assert (await web.post(f"{made.headers['location']}/pause")).status_code == 409


@pytest.mark.usefixtures("published")
async def test_mistakes_are_reported(serve: Any) -> None:
    async with serve() as web:
        for changes, status, place in (
            ({"stages": [0.5]}, 400, "stages"),
            ({"errors": 2}, 400, "criteria.errors"),
            ({"stage": [1]}, 422, "body.stage"),
            ({"min_devices": "many"}, 422, "body.min_devices"),
        ):
            answer = await web.post("/v1/rollouts", json={**NEW, **changes})
            assert answer.status_code == status, answer.text
            assert [problem["place"] for problem in answer.json()["problems"]] == [place]
        assert (await web.post("/v1/rollouts", json={**NEW, "goal_id": "none"})).status_code == 404
        assert (await web.get("/v1/rollouts/none")).status_code == 404
        assert (await web.post("/v1/rollouts/none/pause")).status_code == 404
        assert (await web.post("/v1/rollouts", json=NEW)).status_code == 201
        conflict = await web.post("/v1/rollouts", json=NEW)
        assert (conflict.status_code, conflict.json()["code"]) == (409, "CONFLICT")


@pytest.mark.usefixtures("published")
async def test_roll_outs_are_shown_with_their_devices_as_text(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_INTERVAL_SECONDS", 0.02)
    evil = "<script>alert(1)</script>"
    names = ["kitchen-7", evil]
    async with (
        running_server(site.settings(http="127.0.0.1:0")) as (address, url),
        httpx.AsyncClient(base_url=str(url), timeout=60) as web,
    ):
        assert "mistify rollout start JOB GOAL --server HOST:PORT" in (await web.get("/fleet")).text
        with DevicesClient(address) as client, RolloutsClient(address) as rollouts:
            for name in names:
                await asyncio.to_thread(client.report_status, device(name))
            made = await web.post("/v1/rollouts", json={**NEW, "stages": [1], "min_devices": 2})
            rollout = made.json()["rollout"]["id"]
            for name in names:
                reason = f"{evil} is damaged"
                failed = after(device(name), rollout, InstallationPhase.FAILED, reason=reason)
                await asyncio.to_thread(client.report_status, failed)
            async with asyncio.timeout(60):
                while (await asyncio.to_thread(rollouts.rollout, rollout)).rollout.state.in_force:
                    pass
        page = (await web.get("/fleet")).text
    assert evil not in page
    assert f"roll-out {rollout}: failed" in page
    assert "Still on 0 devices." in page
    assert "2 of 2 devices failed, 100% with a limit of 5%: kitchen-7" in page
    assert '<span class="state failed">stopped</span>' in page


@pytest.mark.usefixtures("published")
async def test_who_started_a_roll_out_is_known_and_recorded(site: Any, serve: Any) -> None:
    async with serve(token=TOKEN) as web:
        headers = {"authorization": f"Bearer {TOKEN}"}
        made = await web.post("/v1/rollouts", json=NEW, headers=headers)
        assert made.json()["rollout"]["started_by"] == "administrator"
    (line,) = (site.store / "logs" / "audit.jsonl").read_text().splitlines()
    recorded = json.loads(line)
    assert (recorded["action"], recorded["subject"]) == ("POST /v1/rollouts", made.headers["location"])
