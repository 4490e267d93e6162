"""The position of running code in a trace, as a W3C trace context (`traceparent`).

Calls, jobs, steps and tasks pass it on. It is empty for whatever is not traced.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Self

_current: Final[ContextVar[str]] = ContextVar("traceparent", default="")

_FORM: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True)
class TraceContext:
    """A span of a trace.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        flags: The lowest bit is set if the trace is recorded.
    """

    trace_id: str
    span_id: str
    flags: int

    @classmethod
    def parse(cls, traceparent: str) -> Self | None:
        """Return the span that a `traceparent` names; None if it is empty or invalid."""
        match = _FORM.fullmatch(traceparent)
        return None if match is None else cls(match[1], match[2], int(match[3], 16))

    @property
    def sampled(self) -> bool:
        """Return whether the trace is recorded."""
        return bool(self.flags & 1)

    def __str__(self) -> str:
        """Return it as a `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def current_traceparent() -> str:
    """Return the position of the running code."""
    return _current.get()


@contextmanager
def within(traceparent: str) -> Iterator[None]:
    """Run the block at a position in a trace."""
    token = _current.set(traceparent)
    try:
        yield
    finally:
        _current.reset(token)
