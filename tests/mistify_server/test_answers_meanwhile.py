"""Devices are answered while something else goes through the fleet or waits for the store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mistify.fleet import DeviceStatus
from mistify.rollouts import Instruction, RolloutState
from mistify_client.rpc.devices import DevicesClient
from mistify_client.rpc.rollouts import RolloutsClient
from mistify_server.fleet import Fleet
from mistify_server.rollouts.devices import RolloutDevices
from mistify_server.server import running_server
from mistify_server.store.sql.fleet import SqlFleetStore
from mistify_server.store.sql.rollouts import SqlRolloutStore
from tests.support.fleets import JOB, after, device, new_rollout
from tests.support.gates import Gate, held
from tests.support.published import publish
from tests.support.signed_packages import write_package


@dataclass
class Callers:
    """A device, an operator and a browser that call a server with a package to roll out."""

    devices: DevicesClient
    rollouts: RolloutsClient
    web: httpx.AsyncClient

    async def report(self, status: DeviceStatus) -> Instruction:
        return await asyncio.to_thread(self.devices.report_status, status)

    async def answered(self, gate: Gate) -> None:
        """Check that a device is answered while something else is held."""
        assert await asyncio.to_thread(gate.reached.wait, 60)
        await self.report(device("meanwhile"))
        assert not gate.opened.is_set()


@pytest.fixture
async def callers(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callers]:
    monkeypatch.setattr("mistify_server.rollouts.reports._INTERVAL_SECONDS", 0.01)
    publish(site.store, JOB, [write_package(tmp_path / "phone-2", {"serve.tflite": b"network"})])
    async with (
        running_server(site.settings(http="127.0.0.1:0")) as (address, url),
        httpx.AsyncClient(base_url=str(url), timeout=60) as web,
    ):
        with DevicesClient(address) as devices, RolloutsClient(address) as rollouts:
            yield Callers(devices, rollouts, web)


async def test_while_a_roll_out_is_started(callers: Callers) -> None:
    with held(SqlRolloutStore, "put") as gate:
        starting = asyncio.create_task(asyncio.to_thread(callers.rollouts.start, new_rollout(1.0)))
        await callers.answered(gate)
    started = (await starting).rollout
    assert (await callers.report(device("a"))).wanted == started.wanted


async def test_while_a_roll_out_is_judged(callers: Callers) -> None:
    await callers.report(device("a"))
    started = (await asyncio.to_thread(callers.rollouts.start, new_rollout(1.0))).rollout
    with held(RolloutDevices, "members") as gate:  # before the report with which the roll-out is done
        await callers.report(after(device("a"), started.id))
        await callers.answered(gate)

    async def is_done() -> bool:
        progress = await asyncio.to_thread(callers.rollouts.rollout, started.id)
        return progress.rollout.state is RolloutState.DONE

    async with asyncio.timeout(60):
        while not await is_done():
            pass


async def test_while_reports_are_written(callers: Callers) -> None:
    with held(SqlFleetStore, "put") as gate:
        reporting = asyncio.create_task(callers.report(device("a")))
        assert await asyncio.to_thread(gate.reached.wait, 60)
        for place in ("/v1/fleet", "/v1/rollouts"):
            assert (await callers.web.get(place)).status_code == 200
        assert not gate.opened.is_set()
    assert await reporting == Instruction()


Request = Callable[[Callers], Awaitable[Any]]

REQUESTS: dict[str, tuple[type, str, Request]] = {
    "page": (Fleet, "summary", lambda callers: callers.web.get("/fleet")),
    "list of devices": (Fleet, "page", lambda callers: callers.web.get("/v1/fleet")),
    "list of roll-outs": (RolloutDevices, "listed", lambda callers: callers.web.get("/v1/rollouts")),
    "list of roll-outs over gRPC": (
        RolloutDevices,
        "listed",
        lambda callers: asyncio.to_thread(callers.rollouts.rollouts),
    ),
}


@pytest.mark.parametrize(("owner", "method", "request_of"), REQUESTS.values(), ids=REQUESTS)
async def test_while_the_fleet_is_shown(
    callers: Callers, owner: type, method: str, request_of: Request
) -> None:
    with held(owner, method) as gate:
        showing = asyncio.ensure_future(request_of(callers))
        await callers.answered(gate)
    await showing
