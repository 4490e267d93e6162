import dataclasses
from types import SimpleNamespace

import psutil
import pytest

from mistify_client.monitor.sensing import sensors
from mistify_client.monitor.sensing.sensors import DeviceSensor


def test_sensors_of_this_device_are_read():
    sensor = DeviceSensor()
    first = sensor()
    assert first.cpu_available is None
    assert 0 < first.memory_available <= psutil.virtual_memory().total
    before = psutil.cpu_times()
    while sum(psutil.cpu_times()) == sum(before):  # the system counts in units of 10 ms
        pass
    assert 0 <= sensor().cpu_available <= 1


def test_the_idle_share_of_the_processor_is_measured(monkeypatch):
    readings = iter([(100.0, 50.0), (110.0, 57.5), (110.0, 57.5), (120.0, 57.5)])
    monkeypatch.setattr(sensors, "_cpu_times", lambda: next(readings))
    sensor = DeviceSensor()
    assert [sensor().cpu_available for _ in range(4)] == [None, 0.75, None, 0.0]


MISSING = {
    "sensors_battery": "battery",
    "sensors_temperatures": "temperature",
    "cpu_freq": "cpu_mhz",
    "virtual_memory": "memory_available",
    "cpu_times": "cpu_available",
}


@pytest.mark.parametrize("function", MISSING)
@pytest.mark.parametrize("fault", ["lacks it", "gives nothing", "cannot be read"])
def test_a_missing_sensor_does_not_affect_the_others(monkeypatch, function, fault):
    def unreadable(*args, **options):
        raise OSError(5, "Input/output error")

    match fault:
        case "lacks it":
            monkeypatch.delattr(psutil, function)
        case "gives nothing":
            monkeypatch.setattr(psutil, function, lambda *args, **options: None)
        case _:
            monkeypatch.setattr(psutil, function, unreadable)
    sensor = DeviceSensor()
    sensor()
    reading = dataclasses.asdict(sensor())
    assert reading[MISSING[function]] is None
    if function != "virtual_memory":
        assert reading["memory_available"] is not None


def test_the_highest_of_several_temperatures_counts(monkeypatch):
    temperatures = {"cpu": [SimpleNamespace(current=41.0), SimpleNamespace(current=67.5)], "disk": []}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: temperatures, raising=False)
    assert DeviceSensor()().temperature == 67.5


def test_a_new_battery_that_holds_more_than_it_should_is_full(monkeypatch):
    battery = SimpleNamespace(percent=104.0, power_plugged=False)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert DeviceSensor()().battery == 1.0
