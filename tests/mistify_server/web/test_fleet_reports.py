"""Reports of devices as a real server shows them."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from markupsafe import escape
from pydantic import TypeAdapter

from mistify.errors import MistifyError
from mistify.fleet import DeviceAdaptation, DeviceReport, DeviceStatus, FleetSummary, LastSwitch
from mistify_client.rpc.devices import DevicesClient
from mistify_server.server import running_server
from mistify_server.store.directory import open_store
from mistify_server.web.rendering import render
from tests.mistify_server.test_fleet import POOL, STATUS


async def test_subnets_found_by_a_device_are_listed_and_shown(site: Any) -> None:
    switch = LastSwitch(1_790_000_000_000, "subnet-1", "subnet-1 would take 30ms")
    status = replace(STATUS, option="subnet-0", last_switch=switch, pool=POOL)
    async with running_server(site.settings(http="127.0.0.1:0")) as (address, url):
        with DevicesClient(address) as client:
            await asyncio.to_thread(client.report_status, status)
        async with httpx.AsyncClient(base_url=str(url), timeout=60) as web:
            listed = (await web.get("/v1/fleet")).json()
            page = (await web.get("/fleet")).text
    (device,) = listed["devices"]
    assert TypeAdapter(DeviceStatus).validate_python(device["status"]) == status
    assert 'subnet-0<br><span class="hint">of 3</span>' in page
    assert "from subnet-1<br>" in page
    assert "3 subnets found on the device, by agreement on 100 examples" in page
    figures = ("8ms", "0.80x", "95.4%")
    assert "<td>subnet-1</td>" + "".join(f'<td class="number">{each}</td>' for each in figures) in page
    with open_store(site.store) as store:
        assert [report.status for report in store.fleet.all()] == [status]


@pytest.mark.parametrize(
    ("adapted", "shown"),
    [(1_790_000_000_000, "adapted since 2026-09-21 14:13 UTC, shift 4.3"), (None, "not adapted, shift 4.3")],
)
async def test_the_adaptation_of_a_device_is_listed_and_shown(
    site: Any, adapted: int | None, shown: str
) -> None:
    status = replace(STATUS, adaptation=DeviceAdaptation(adapted, 4.32, 1_000))
    async with running_server(site.settings(http="127.0.0.1:0")) as (address, url):
        with DevicesClient(address) as client:
            await asyncio.to_thread(client.report_status, status)
        async with httpx.AsyncClient(base_url=str(url), timeout=60) as web:
            (device,) = (await web.get("/v1/fleet")).json()["devices"]
            page = (await web.get("/fleet")).text
    assert TypeAdapter(DeviceStatus).validate_python(device["status"]) == status
    assert f'<span class="hint">{shown}</span>' in page
    with open_store(site.store) as store:
        assert [report.status for report in store.fleet.all()] == [status]


async def test_reports_of_devices_are_listed_and_shown_as_text(site: Any) -> None:
    evil = '<script>alert("x")</script>'
    status = replace(STATUS, name=evil, fits=False, problems={"package": "is damaged"})
    async with running_server(site.settings(http="127.0.0.1:0")) as (address, url):
        with DevicesClient(address) as client:
            await asyncio.to_thread(client.report_status, status)
            with pytest.raises(MistifyError, match="options"):
                await asyncio.to_thread(client.report_status, replace(STATUS, options=0))
        async with httpx.AsyncClient(base_url=str(url), timeout=60) as web:
            listed = (await web.get("/v1/fleet")).json()
            page = (await web.get("/fleet")).text
    (device,) = listed["devices"]
    assert TypeAdapter(DeviceStatus).validate_python(device["status"]) == status
    assert listed["next_page_token"] == ""
    assert escape(evil) in page
    assert evil not in page
    assert "1 device, 1 of them missing their targets" in page
    assert "package: is damaged" in page
    # Options have the same ids as in the monitor's reasons.
    assert 'branch-0<br><span class="hint">of 3</span>' in page
    assert "from branch-1<br>" in page
    with open_store(site.store) as store:
        assert [report.status for report in store.fleet.all()] == [status]


@pytest.mark.parametrize("unix_ms", [253_402_300_800_000, 10**30])
def test_a_stored_time_that_no_calendar_has_is_shown_as_a_dash(unix_ms: int) -> None:
    status = replace(STATUS, last_switch=LastSwitch(unix_ms, "branch-1", "branch-1 would take 30ms"))
    page = render(
        "fleet.html",
        path="/fleet",
        needs_token=False,
        in_session=False,
        caller=None,
        reports=[DeviceReport(status, datetime(2026, 11, 25, tzinfo=UTC))],
        summary=FleetSummary(devices=1, missing=0),
        next_page_token="",
        rollouts=[],
        devices=[],
        groups=[],
    )
    assert "-, from branch-1<br>" in page
