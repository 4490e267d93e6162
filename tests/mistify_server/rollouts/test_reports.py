"""Answers to reports of devices."""

import asyncio
from dataclasses import replace

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import Instruction
from mistify_server.fleet import Fleet
from mistify_server.rollouts.reports import DeviceReports
from mistify_server.rollouts.service import RolloutService
from mistify_server.store.sql.fleet import SqlFleetStore
from tests.mistify_server.rollouts.site import Site
from tests.support.fleets import device, new_rollout


async def test_a_report_is_answered_once_it_is_stored(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(*_: object) -> None:
        raise MistifyError(ErrorCode.UNAVAILABLE, "no space left")

    reports = DeviceReports(site.fleet, site.service)
    with monkeypatch.context() as full:
        full.setattr(SqlFleetStore, "put", put)
        with pytest.raises(MistifyError, match="no space left"):
            await reports.answer(device("kitchen"))
    assert site.store.fleet.all() == []
    assert await reports.answer(device("kitchen")) == Instruction()
    assert [report.status for report in site.store.fleet.all()] == [device("kitchen")]


async def test_reports_together_are_answered_one_by_one_by_the_roll_outs_of_the_store(site: Site) -> None:
    other = RolloutService(site.store.rollouts, site.store.jobs, Fleet(site.store.fleet), lambda: site.now)
    wanted = other.start(new_rollout(1.0)).rollout.wanted
    reports = DeviceReports(site.fleet, site.service)
    statuses = [
        device("kitchen"),
        replace(device("hall"), options=0),
        replace(device("attic"), rollouts=None),
    ]
    answers = await asyncio.gather(*map(reports.answer, statuses), return_exceptions=True)
    assert (answers[0], answers[2]) == (Instruction(wanted=wanted), Instruction())
    assert isinstance(answers[1], MistifyError)
    assert answers[1].code is ErrorCode.INVALID_CONFIG
    other.roll_back(wanted.rollout)
    assert await reports.answer(device("kitchen")) == Instruction()
    assert {report.status.name for report in site.store.fleet.all()} == {"kitchen", "attic"}
