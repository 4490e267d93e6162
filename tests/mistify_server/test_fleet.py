"""Reports of devices: stored, listed, and removed."""

import asyncio
import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.fleet import (
    DeviceAdaptation,
    DevicePool,
    DeviceReport,
    DeviceStatus,
    DeviceSubnet,
    FleetSummary,
    LastSwitch,
)
from mistify.rollouts import DeviceInstallation, DeviceRollouts, InstallationPhase
from mistify_server import fleet as fleet_module
from mistify_server.fleet import REMEMBERED, Fleet
from mistify_server.identity.tenants import ByTenant
from mistify_server.rollouts import reports as reports_module
from mistify_server.rollouts.reports import DeviceReports, keep_updated
from mistify_server.rollouts.service import RolloutService
from mistify_server.store.directory import Store, open_store
from mistify_server.store.sql.fleet import SqlFleetStore
from tests.support.faults import raise_no_space

STATUS = DeviceStatus(
    name="kitchen-7",
    job_id="20261125-120000-abcd",
    goal_id="half",
    option="branch-0",
    options=3,
    latency_ms=4.5,
    expected_ms=4.0,
    idle=False,
    fits=True,
    reason="the best option within the targets",
    targets={"latency": "20ms"},
    last_switch=LastSwitch(1_790_000_000_000, "branch-1", "branch-1 would take 30ms"),
)


POOL = DevicePool(
    Metric.AGREEMENT, 100, 10.0, (DeviceSubnet(4.0, 0.7), DeviceSubnet(8.0, 0.954), DeviceSubnet(10.0, 1.0))
)


def installing(**changes: Any) -> DeviceRollouts:
    installation = DeviceInstallation("r", InstallationPhase.INSTALLED)
    return DeviceRollouts("phone", installation=replace(installation, **changes))


class Clock:
    """A manually set clock."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 25, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_the_last_report_of_each_device_survives_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path) as store:
        fleet = Fleet(store.fleet, clock)
        fleet.report(replace(STATUS, fits=False))
        fleet.report(replace(STATUS, name="attic", last_switch=None))
        fleet.write()
        clock.now += timedelta(minutes=1)
        fleet.report(STATUS)
        fleet.write()
    with open_store(tmp_path) as store:
        reports, following = Fleet(store.fleet, clock).page(10)
    assert [report.status for report in reports] == [replace(STATUS, name="attic", last_switch=None), STATUS]
    assert [report.seen for report in reports] == [clock.now - timedelta(minutes=1), clock.now]
    assert following == ""


def test_pages_are_sorted_by_name(store: Store) -> None:
    fleet = Fleet(store.fleet)
    for number in (3, 1, 5, 2, 4):
        fleet.report(replace(STATUS, name=f"device-{number}", fits=number > 2))
    seen, token = [], ""
    while True:
        reports, token = fleet.page(2, token)
        seen += [report.status.name for report in reports]
        if not token:
            break
    assert seen == [f"device-{number}" for number in range(1, 6)]
    assert fleet.summary() == FleetSummary(devices=5, missing=2)


def test_devices_without_a_report_for_a_month_are_removed(store: Store) -> None:
    clock = Clock()
    fleet = Fleet(store.fleet, clock)
    fleet.report(STATUS)
    clock.now += timedelta(days=20)
    fleet.report(replace(STATUS, name="attic"))
    clock.now += timedelta(days=11)
    fleet.write()
    fleet.forget_silent()
    for known in (fleet, Fleet(store.fleet, clock)):
        assert [report.status.name for report in known.page(10)[0]] == ["attic"]


def test_a_report_that_could_not_be_written_does_not_replace_a_later_one_to_another_server(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    fleet, other = Fleet(store.fleet, clock), Fleet(store.fleet, clock)
    fleet.report(STATUS)
    with monkeypatch.context() as full:
        full.setattr(SqlFleetStore, "put", raise_no_space)
        with pytest.raises(MistifyError, match="no space left"):
            fleet.write()
    clock.now += timedelta(seconds=1)
    later = replace(STATUS, option="branch-2")
    other.report(later)
    other.write()
    fleet.report(replace(STATUS, name="attic"))
    fleet.write()
    fleet.refresh()
    assert {report.status.name: report.status for report in fleet.reports()} == {
        "kitchen-7": later,
        "attic": replace(STATUS, name="attic"),
    }
    assert len(store.fleet.all()) == 2


def test_servers_take_over_and_forget_devices_of_each_other(store: Store) -> None:
    clock = Clock()
    fleets = [Fleet(store.fleet, clock) for _ in range(2)]
    clock.now += timedelta(milliseconds=1, microseconds=234)
    for number, fleet in enumerate(fleets):
        fleet.report(replace(STATUS, name=f"device-{number}"))
        fleet.write()
    clock.now += timedelta(days=20)
    for option, fleet in zip(("branch-1", "branch-2"), fleets, strict=True):
        fleet.report(replace(STATUS, name="moves", option=option))
        fleet.write()
    fleets[0].report(replace(STATUS, name="new"))  # not written yet
    for fleet in fleets:
        fleet.refresh()
    stored = {report.status.name: report for report in store.fleet.all()}
    assert stored["moves"].status.option == "branch-2"
    assert {report.status.name: report for report in fleets[1].reports()} == stored
    assert {report.status.name for report in fleets[0].reports()} == {*stored, "new"}
    clock.now += timedelta(days=11)
    fleets[0].write()
    fleets[0].forget_silent()
    fleets[1].refresh()
    assert [report.status.name for report in fleets[1].page(10)[0]] == ["moves", "new"]


def test_only_changed_reports_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fleets = [Fleet(store.fleet) for _ in range(2)]
    for name in ("attic", "kitchen"):
        fleets[0].report(replace(STATUS, name=name))
    fleets[0].write()
    read: list[set[str]] = []

    def named(self: SqlFleetStore, names: Collection[str]) -> list[DeviceReport]:
        read.append({*names})
        return original(self, names)

    original = SqlFleetStore.named
    monkeypatch.setattr(SqlFleetStore, "named", named)
    for fleet in (*fleets, *fleets):
        fleet.refresh()
    assert read == [set(), {"attic", "kitchen"}, set(), set()]


def test_a_report_of_a_newer_server_is_read_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path) as store:
        clock = Clock()
        newer, older = Fleet(store.fleet, clock), Fleet(store.fleet, clock)
        newer.report(STATUS)
        newer.write()
        with closing(sqlite3.connect(tmp_path / "mistify.db")) as database, database:
            database.execute("UPDATE fleet SET status = json_set(status, '$.fits', 'perhaps')")
        for _ in range(3):
            older.refresh()
        assert caplog.text.count("upgrade this server") == 1
        assert older.reports() == []
        clock.now += timedelta(minutes=1)
        newer.report(STATUS)
        newer.write()
        older.refresh()
        assert [report.status for report in older.reports()] == [STATUS]


async def test_reports_are_updated_even_if_those_of_another_tenant_cannot_be(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(DeviceReports):
        @override
        def update(self) -> None:
            raise RuntimeError("an unexpected state")

    def reports(tenant: str) -> DeviceReports:
        own = store.of(tenant)
        fleet = fleets.of(tenant)
        kind = Broken if tenant == "default" else DeviceReports
        return kind(fleet, RolloutService(own.rollouts, own.jobs, fleet))

    monkeypatch.setattr(reports_module, "_INTERVAL_SECONDS", 0.0)
    fleets = ByTenant(lambda tenant: Fleet(store.of(tenant).fleet), ["red"])
    updating = asyncio.create_task(keep_updated(ByTenant(reports, ["red"])))
    store.of("red").fleet.put([DeviceReport(STATUS, datetime(2026, 11, 25, tzinfo=UTC))])
    async with asyncio.timeout(60):
        while not fleets.of("red").reports():
            await asyncio.sleep(0.01)
    assert not updating.done()
    updating.cancel()
    await asyncio.wait([updating])
    assert updating.cancelled()
    assert "cannot be updated because of an internal error" in caplog.text
    assert "an unexpected state" in caplog.text


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"goal_id": ""}, "goal_id"),
        ({"option": ""}, "option"),
        ({"options": 0}, "options"),
        ({"latency_ms": float("nan")}, "latency_ms"),
        ({"expected_ms": 0.0}, "expected_ms"),
        ({"reason": "x" * 1_001}, "reason"),
        ({"targets": {str(number): "1ms" for number in range(51)}}, "targets"),
        ({"problems": {"package": "x" * 1_001}}, "problems"),
        ({"last_switch": LastSwitch(-1, "branch-1", "")}, "last_switch.unix_ms"),
        ({"last_switch": LastSwitch(253_402_300_800_000, "branch-1", "")}, "last_switch.unix_ms"),
        ({"adaptation": DeviceAdaptation(-1, 1.0, 0)}, "adaptation.adapted_unix_ms"),
        ({"adaptation": DeviceAdaptation(None, float("nan"), 0)}, "adaptation.shift"),
        ({"adaptation": DeviceAdaptation(None, -0.1, 0)}, "adaptation.shift"),
        ({"adaptation": DeviceAdaptation(None, 1.0, -1)}, "adaptation.examples"),
        ({"pool": replace(POOL, original_ms=0.0)}, "pool.original_ms"),
        ({"pool": replace(POOL, subnets=(DeviceSubnet(float("inf"), 1.0),))}, "pool.subnets[0].latency_ms"),
        ({"pool": replace(POOL, subnets=(DeviceSubnet(1.0, float("nan")),))}, "pool.subnets[0].accuracy"),
        ({"pool": replace(POOL, subnets=51 * POOL.subnets[:1])}, "pool.subnets"),
        ({"problems": {str(number): "x" * 1_000 for number in range(20)}}, "all texts together"),
        ({"last_switch": LastSwitch(1, "branch-1", "x" * 1_001)}, "last_switch.reason"),
        ({"last_switch": LastSwitch(1, "", "why")}, "last_switch.previous"),
        ({"option": "x" * 201}, "option"),
        ({"name": "kitchen\0"}, "name"),
        ({"rollouts": DeviceRollouts("")}, "rollouts.package"),
        ({"rollouts": DeviceRollouts("phone", 0.0)}, "rollouts.measured_ms"),
        ({"rollouts": installing(rollout="")}, "rollouts.installation.rollout"),
        ({"rollouts": installing(before_ms=float("inf"))}, "rollouts.installation.before_ms"),
        ({"rollouts": installing(agreement=1.1)}, "rollouts.installation.agreement"),
        ({"rollouts": installing(reason="x" * 1_001)}, "rollouts.installation.reason"),
    ],
)
def test_an_impossible_status_is_refused(store: Store, changes: dict[str, Any], place: str) -> None:
    fleet = Fleet(store.fleet)
    with pytest.raises(MistifyError) as raised:
        fleet.report(replace(STATUS, **changes))
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert [problem.place for problem in raised.value.problems] == [place]
    assert fleet.page(10) == ([], "")


def test_the_number_of_devices_is_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "MOST_DEVICES", 1)
    fleet = Fleet(store.fleet)
    fleet.report(STATUS)
    with pytest.raises(MistifyError, match='use another server for "attic"') as raised:
        fleet.report(replace(STATUS, name="attic"))
    assert raised.value.code is ErrorCode.NO_ROOM
    fleet.report(replace(STATUS, option="branch-2"))
    assert fleet.page(10)[0][0].status.option == "branch-2"


def test_the_text_of_all_devices_is_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    short, long = (replace(STATUS, problems={"data": "x" * length}) for length in (100, 600))
    Fleet(store.fleet, clock).report(short)
    monkeypatch.setattr(fleet_module, "MOST_TEXT", 1_000)
    fleet = Fleet(store.fleet, clock)
    fleet.report(long)
    for status in (long, replace(long, option="branch-2"), short, long):
        fleet.report(status)
    with pytest.raises(MistifyError, match='of "attic"; expected at most 1,000') as raised:
        fleet.report(replace(short, name="attic", problems={"data": "x" * 400}))
    assert raised.value.code is ErrorCode.NO_ROOM
    fleet.write()
    clock.now += REMEMBERED + timedelta(seconds=1)
    fleet.forget_silent()
    fleet.report(replace(short, name="attic"))
    fleet.write()
    for opened in (fleet, Fleet(store.fleet, clock)):
        opened.report(replace(long, name="attic"))
        with pytest.raises(MistifyError):
            opened.report(replace(long, name="cellar"))


def test_reports_of_before_adaptation_are_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fleet = Fleet(store.fleet)
        fleet.report(STATUS)
        fleet.write()
    with closing(sqlite3.connect(tmp_path / "mistify.db")) as database, database:
        database.execute("UPDATE fleet SET status = json_remove(status, '$.adaptation')")
    with open_store(tmp_path) as store:
        assert [report.status for report in store.fleet.all()] == [STATUS]
