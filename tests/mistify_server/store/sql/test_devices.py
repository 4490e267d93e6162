"""Stored devices; the tests of the service cover how they are used."""

from datetime import UTC, datetime

import pytest

from mistify.costs.devices import Device, DeviceTable
from mistify.costs.latency import LatencyModel
from mistify.costs.profiles import MeasuredProfile
from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.directory import Store

DEVICE = Device("my-board", "Cortex-A72", "LiteRT 2", (), datetime(2026, 1, 2, tzinfo=UTC))
MODEL = LatencyModel(start=1.0, routines={})
TABLE = DeviceTable(DEVICE.name, DEVICE.machine, DEVICE.runtime, ())


@pytest.mark.parametrize(
    ("device", "profile", "message"),
    [
        ("my-board", "my-board@int8", 'the device my-board has no profile "my-board@int8"'),
        ("my-bord", "my-board", 'no device "my-bord"'),
    ],
)
def test_a_report_about_an_unknown_device_or_package_is_refused(
    store: Store, device: str, profile: str, message: str
) -> None:
    known = MeasuredProfile("my-board", MODEL, integer=False)
    store.devices.put(DEVICE, TABLE, [known])
    with pytest.raises(MistifyError, match=message) as raised:
        store.devices.report(device, profile, "job/goal", 1.5)
    assert raised.value.code is ErrorCode.NOT_FOUND
    assert store.devices.profiles("my-board") == [known]


def test_a_report_only_changes_the_factor_of_its_profile(store: Store) -> None:
    both = [
        MeasuredProfile("my-board", MODEL, integer=False),
        MeasuredProfile("my-board@int8", MODEL, integer=True),
    ]
    store.devices.put(DEVICE, TABLE, both)
    factor = store.devices.report("my-board", "my-board@int8", "job/goal", 1.5)
    assert factor > 1.0
    assert [profile.factor for profile in store.devices.profiles("my-board")] == [1.0, factor]
