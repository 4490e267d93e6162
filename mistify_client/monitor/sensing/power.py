"""The watts of the device between two readings."""

import time
from collections.abc import Callable

from mistify.profiling.energy import energy_counter
from mistify_client.monitor.sensing.system import SystemFiles


class PowerMeter:
    """A meter of the processors and their memory (RAPL), or of the whole device on a battery.

    Args:
        files: The kernel's files, which include those of meters.
        clock: Returns seconds.
    """

    def __init__(self, files: SystemFiles, clock: Callable[[], float] = time.monotonic) -> None:
        self._files, self._clock = files, clock
        self._counter = energy_counter(files.sys / "class" / "powercap")
        self._before: tuple[float, float] | None = None

    def watts(self) -> float | None:
        """Return the mean power since the last call; None without a meter, and at first with RAPL."""
        if self._counter is None:
            return self._files.battery_watts()
        before, self._before = self._before, (self._clock(), self._counter())
        if before is None or self._before[0] <= before[0]:
            return None
        return (self._before[1] - before[1]) / (self._before[0] - before[0])
