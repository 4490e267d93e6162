"""An intermittent CPU load, with one process per core.

`python -m benchmarks.device.load BUSY`

Each process is busy for a share of every quarter of a millisecond, with a real-time priority: other programs
get the rest, in slices shorter than an inference. Without the right to that priority, it is busy all the
time.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final

_PERIOD: Final = 0.00025

#: Higher than that of a process measured with priority 1, on a machine with other work.
_PRIORITY: Final = 2
_CORES: Final = sorted(os.sched_getaffinity(0))


class Load:
    """Processes that use a share of every core while switched on."""

    def __init__(self, busy: float) -> None:
        command = [sys.executable, "-m", "benchmarks.device.load", str(busy)]
        self._processes = [
            subprocess.Popen([*command, str(core)], stdout=subprocess.PIPE, text=True) for core in _CORES
        ]
        for process in self._processes:
            if process.stdout is not None:
                process.stdout.readline()
        self.switch(on=False)

    def __enter__(self) -> "Load":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def switch(self, *, on: bool) -> None:
        """Occupy the CPU, or release it."""
        for process in self._processes:
            process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Occupy the CPU within the context."""
        self.switch(on=True)
        try:
            yield
        finally:
            self.switch(on=False)


def _work(busy: float, core: int) -> None:
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        busy = 1.0
        with suppress(PermissionError):
            os.nice(-20)
    print("ready", flush=True)
    begin = time.perf_counter()
    while True:
        while (now := time.perf_counter()) < begin + busy * _PERIOD:
            pass
        begin = max(begin, now - _PERIOD) + _PERIOD  # a late wake-up does not lengthen the period
        time.sleep(max(0.0, begin - now))


if __name__ == "__main__":
    _work(float(sys.argv[1]), int(sys.argv[2]))
