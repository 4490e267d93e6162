"""Responses of the HTTP API: all of their values can be written as JSON."""

import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from mistify.config.data.metric import Metric
from mistify.costs.devices import Device, Setting
from mistify.fleet import DeviceAdaptation, DevicePool, DeviceReport, DeviceStatus, DeviceSubnet, LastSwitch
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import JobEvent
from mistify.jobs.part import JobPart
from mistify.jobs.plan import Plan
from tests.support.job_values import details, events, int64, jobs, plans, texts

NOW = datetime(2026, 1, 2, tzinfo=UTC)
STATUS = DeviceStatus(
    "kitchen",
    "job-1",
    "half",
    "exit-0",
    3,
    4.0,
    3.0,
    idle=False,
    fits=True,
    reason="it is the best",
    targets={"latency": "5 ms"},
    problems={"slices": "the disk is full"},
    last_switch=LastSwitch(1, "branch-0", "it was slow"),
    pool=DevicePool(Metric.ACCURACY, 10, 3.0, (DeviceSubnet(2.0, 0.5),)),
    adaptation=DeviceAdaptation(1, 2.0, 3),
)
DEVICE = Device("my-board", "armv8", "ai-edge-litert 2", (Setting(True, 2, 0.1, 0.2, watts=2.5),), NOW)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (JobPart, st.builds(JobPart, jobs, int64, int64, texts)),
        (Plan, plans),
        (GoalDetails, details),
        (JobEvent, events),
        (DeviceReport, st.just(DeviceReport(STATUS, NOW))),
        (Device, st.just(DEVICE)),
    ],
)
def test_every_value_can_be_sent(kind: Any, values: st.SearchStrategy[Any]) -> None:
    adapter = TypeAdapter[Any](kind)

    @settings(deadline=None, max_examples=30)
    @given(values)
    def check(value: Any) -> None:
        assert json.loads(adapter.dump_json(value)).keys() == {field.name for field in fields(value)}

    check()
