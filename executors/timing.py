"""Timesheets: seconds by activity."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter


class Timesheet:
    """Seconds by activity; each second is booked once, to the innermost activity."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []

    @contextmanager
    def booking(self, activity: str) -> Iterator[None]:
        """Book the time of the block, less what activities inside it have booked."""
        start = perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            taken = perf_counter() - start
            own = taken - self._inner.pop()
            self.seconds[activity] = self.seconds.get(activity, 0.0) + own
            if self._inner:
                self._inner[-1] += taken


_current: ContextVar[Timesheet] = ContextVar("timesheet", default=Timesheet())  # noqa: B039


@contextmanager
def timesheet() -> Iterator[Timesheet]:
    """Keep a timesheet of its own for everything that the block does."""
    sheet = Timesheet()
    token = _current.set(sheet)
    try:
        yield sheet
    finally:
        _current.reset(token)


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Book the time of the block to an activity, on the current timesheet."""
    with _current.get().booking(name):
        yield
