"""Recording of what a worker does during a task."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from mistify_server.tasks.periods import Period, WorkerSpan

#: Maximum number of periods of a task: a message to the server is a line.
MOST_PERIODS: Final = 500


class PeriodRecorder:
    """Records the work on a task, which begins now, and the periods of its activities.

    Args:
        most: Maximum number of periods; later ones are only counted.
        clock: Returns nanoseconds since 1970.
    """

    def __init__(self, most: int = MOST_PERIODS, clock: Callable[[], int] = time.time_ns) -> None:
        self._most, self._clock = most, clock
        self._began_ns = clock()
        self._periods: list[Period] = []
        self._open: list[int] = []
        self._left_out = 0

    @contextmanager
    def activity(self, name: str) -> Iterator[None]:
        """Record the block as a period of an activity."""
        if len(self._periods) == self._most:
            self._left_out += 1
            yield
            return
        now = self._clock()
        period = Period(
            activity=name,
            began_ns=now,
            ended_ns=now,
            within=self._open[-1] if self._open else None,
            failed=True,
        )
        index = len(self._periods)
        self._periods.append(period)
        self._open.append(index)
        failed = True
        try:
            yield
            failed = False
        finally:
            self._open.pop()
            ended = {"ended_ns": self._clock(), "failed": failed}
            self._periods[index] = period.model_copy(update=ended)

    def span(self) -> WorkerSpan:
        """Return the work until now."""
        return WorkerSpan(
            began_ns=self._began_ns,
            ended_ns=self._clock(),
            host=socket.gethostname(),
            pid=os.getpid(),
            periods=tuple(self._periods),
            left_out=self._left_out,
        )
