"""Timings by activity, in seconds."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from time import perf_counter


class Timings:
    """Seconds by activity; each second counts only for the innermost activity."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []

    @contextmanager
    def measuring(self, activity: str) -> Iterator[None]:
        """Add the time of the block to an activity, without that of nested activities."""
        # The outermost activity is everything between the others.
        observe = _observer.get() if self._inner else None
        start = perf_counter()
        self._inner.append(0.0)
        try:
            with nullcontext() if observe is None else observe(activity):
                yield
        finally:
            taken = perf_counter() - start
            own = taken - self._inner.pop()
            self.seconds[activity] = self.seconds.get(activity, 0.0) + own
            if self._inner:
                self._inner[-1] += taken


#: Called with an activity, returns a context manager for its block.
_observer: ContextVar[Callable[[str], AbstractContextManager[object]] | None] = ContextVar(
    "observer", default=None
)

_current: ContextVar[Timings] = ContextVar("timings", default=Timings())  # noqa: B039


@contextmanager
def collect_timings() -> Iterator[Timings]:
    """Collect the timings of everything inside the block, separately from enclosing timings."""
    timings = Timings()
    token = _current.set(timings)
    try:
        yield timings
    finally:
        _current.reset(token)


@contextmanager
def observed(observe: Callable[[str], AbstractContextManager[object]]) -> Iterator[None]:
    """Run every activity within the block, except for outermost ones, in a context of its own.

    Args:
        observe: Returns the context manager for a period of an activity.
    """
    token = _observer.set(observe)
    try:
        yield
    finally:
        _observer.reset(token)


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Add the time of the block to an activity in the current timings."""
    with _current.get().measuring(name):
        yield
