"""Sensors for the resources of a device: processor, memory, temperature, battery (paper 6)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import psutil

from mistify_client.monitor.sensing.power import PowerMeter
from mistify_client.monitor.sensing.system import SystemFiles

__all__ = ["SensorReading"]


@dataclass(frozen=True)
class SensorReading:
    """Resources at one time; a value that the device does not report is None.

    Attributes:
        cpu_available: Idle share of the processors since the previous reading, 0 to 1.
        cpu_mhz: Clock frequency in MHz, the mean over the processors.
        memory_available: Bytes that can be allocated without swapping, also within the control groups of
            apps.
        temperature: Degrees Celsius of the hottest sensor.
        battery: Charge as a share, 0 to 1.
        plugged: True if the device runs on mains power.
        watts: Mean power since the previous reading, of the processors and their memory or, if these have no
            meter and the device runs on its battery, of the whole device.
        cpu_pressure: Share of the last 10 seconds in which processes waited for the processor, 0 to 1.
        memory_pressure: The same share for memory.
    """

    cpu_available: float | None = None
    cpu_mhz: float | None = None
    memory_available: int | None = None
    temperature: float | None = None
    battery: float | None = None
    plugged: bool | None = None
    watts: float | None = None
    cpu_pressure: float | None = None
    memory_pressure: float | None = None


#: Takes a reading. A replayed trace can serve as a sensor, too.
Sensor: TypeAlias = Callable[[], SensorReading]


class DeviceSensor:
    """Sensor of the device on which the process runs, based on psutil and the files of the kernel.

    The value of a missing or failing sensor is None; no error is raised. The first reading has no
    `cpu_available`, because there is no earlier one to compare with.

    Args:
        files: The files of the kernel; by default those of this system.
    """

    def __init__(self, files: SystemFiles | None = None) -> None:
        self._files = files or SystemFiles()
        self._power = PowerMeter(self._files)
        self._before: tuple[float, float] | None = None

    def __call__(self) -> SensorReading:
        """Return the current resources of the device."""
        battery = _read_or_none(_battery)
        return SensorReading(
            cpu_available=self._cpu_available(),
            cpu_mhz=_read_or_none(lambda: psutil.cpu_freq().current),
            memory_available=_read_or_none(lambda: psutil.virtual_memory().available),
            temperature=_read_or_none(lambda: max(_temperatures())),
            battery=_read_or_none(lambda: min(1.0, battery.percent / 100)),  # a new one may hold more
            plugged=_read_or_none(lambda: battery.power_plugged),
            watts=_read_or_none(self._power.watts),
            cpu_pressure=_read_or_none(lambda: self._files.pressure("cpu")),
            memory_pressure=_read_or_none(lambda: self._files.pressure("memory")),
        )

    def _cpu_available(self) -> float | None:
        times: tuple[float, float] | None = _read_or_none(_cpu_times)
        if times is None:
            return None
        before, self._before = self._before, times
        if before is None or times[0] <= before[0]:
            return None
        return min(1.0, max(0.0, (times[1] - before[1]) / (times[0] - before[0])))


def _cpu_times() -> tuple[float, float]:
    """Return the seconds of all processors since the system started: in total, and idle."""
    times = psutil.cpu_times()
    return sum(times), times.idle


def _battery() -> Any:
    return psutil.sensors_battery()


def _temperatures() -> Iterator[float]:
    for sensors in psutil.sensors_temperatures().values():
        yield from (sensor.current for sensor in sensors)


def _read_or_none(read: Callable[[], Any]) -> Any:
    """Return the value of a sensor, or None if the sensor is missing.

    A sensor can be missing in many ways: psutil lacks the function on this system, or returns None or an
    empty result, or the file behind the sensor is unreadable, contains no number or has disappeared.
    """
    try:
        return read()
    except Exception:  # no failure of a sensor may end the monitor
        return None
