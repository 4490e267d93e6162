"""What a device has to give at the moment: processor, memory, temperature, battery (paper 6)."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

#: Of the optional group `monitor`; None where it is not installed: then nothing is known of the device.
psutil: Any = None
with suppress(ImportError):
    psutil = import_module("psutil")

#: Why nothing is known of the device; None where psutil is there.
PSUTIL_MISSING = (
    "psutil is not installed, nothing is known of the device; pip install 'mistify-porting[monitor]'"
    if psutil is None
    else None
)


@dataclass(frozen=True)
class SensorReading:
    """Resources at one moment; None stands for what the device does not tell.

    Attributes:
        cpu_available: share of the processors' time that nobody used since the reading before, 0 to 1.
        cpu_mhz: clock frequency, the mean over the processors.
        memory_available: bytes that can be had without swapping.
        temperature: of the hottest sensor, in degrees Celsius.
        battery: charge as a share, 0 to 1.
        plugged: whether the device runs on mains power.
    """

    cpu_available: float | None = None
    cpu_mhz: float | None = None
    memory_available: int | None = None
    temperature: float | None = None
    battery: float | None = None
    plugged: bool | None = None


#: Takes a reading. A trace that is replayed is one as well.
Sensor: TypeAlias = Callable[[], SensorReading]


class DeviceSensor:
    """Reads the device it runs on, through psutil; a sensor that is missing or fails is absent, no error.

    The first reading has no `cpu_available`, since there is none before it.
    """

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def __call__(self) -> SensorReading:
        """See `SensorReading`."""
        if psutil is None:
            return SensorReading()
        battery = _told(_battery)
        return SensorReading(
            cpu_available=self._cpu_available(),
            cpu_mhz=_told(lambda: psutil.cpu_freq().current),
            memory_available=_told(lambda: psutil.virtual_memory().available),
            temperature=_told(lambda: max(_temperatures())),
            battery=_told(lambda: battery.percent / 100),
            plugged=_told(lambda: battery.power_plugged),
        )

    def _cpu_available(self) -> float | None:
        times: tuple[float, float] | None = _told(_cpu_times)
        if times is None:
            return None
        before, self._before = self._before, times
        if before is None or times[0] <= before[0]:
            return None
        return min(1.0, max(0.0, (times[1] - before[1]) / (times[0] - before[0])))


def _cpu_times() -> tuple[float, float]:
    """Seconds of all processors since the start: altogether, and unused."""
    times = psutil.cpu_times()
    return sum(times), times.idle


def _battery() -> Any:
    return psutil.sensors_battery()


def _temperatures() -> Iterator[float]:
    for sensors in psutil.sensors_temperatures().values():
        yield from (sensor.current for sensor in sensors)


def _told(read: Callable[[], Any]) -> Any:
    """What a sensor says; None where it is missing.

    Sensors are missing in many ways: psutil lacks the function on this system, gives None or nothing, or the
    file behind it cannot be read, is no number, or vanished.
    """
    try:
        return read()
    except Exception:  # a monitor outlives every sensor
        return None
