"""The interface of traces, and its implementation for servers without traces."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from typing_extensions import override

Attributes: TypeAlias = Mapping[str, str | bool | int | float]


class Span:
    """A part of a trace that has not ended; this one is not recorded."""

    def describe(self, attributes: Attributes) -> None:
        """Add attributes."""

    def rename(self, name: str) -> None:
        """Give it another name."""

    def note(self, event: str, attributes: Attributes) -> None:
        """Add an event that happens now."""

    def fail(self, kind: str, reason: str) -> None:
        """Mark it as failed.

        Args:
            kind: The kind of the error, such as the name of an `ErrorCode`.
        """


@dataclass(frozen=True)
class FinishedSpan:
    """A part of a trace that has ended.

    Attributes:
        began_ns: Its begin, in nanoseconds since 1970.
        error: Why it failed; empty if it did not.
        children: The parts within it.
        span_id: Its id, 16 hexadecimal digits; empty for a random one.
    """

    name: str
    began_ns: int
    ended_ns: int
    attributes: Attributes = field(default_factory=dict)
    error: str = ""
    children: Sequence["FinishedSpan"] = ()
    span_id: str = ""


class Traces(ABC):
    """Records spans of traces. Spans within spans follow from the position of the code (`context.within`).

    An exception in the block of a span marks it as failed. A span whose block is cancelled is not failed.
    """

    @property
    @abstractmethod
    def enabled(self) -> bool:
        """Return whether spans are recorded."""

    @abstractmethod
    def call(self, name: str, caller: str, attributes: Attributes) -> AbstractContextManager[Span]:
        """Record a call within the block, which begins a trace, or continues that of its caller.

        It only fails by errors of the server, not by those of its caller.

        Args:
            caller: The `traceparent` that the caller has sent; ignored if it is empty or invalid.
        """

    @abstractmethod
    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Span]:
        """Record a span within the block; without effect outside of a trace."""

    @abstractmethod
    def record(self, span: FinishedSpan, parent: str) -> None:
        """Record a span that has ended.

        Args:
            parent: The position of the span that it belongs to.
        """

    @abstractmethod
    def close(self) -> None:
        """Send what is left; may take seconds."""


class NoTraces(Traces):
    """Records nothing."""

    @property
    @override
    def enabled(self) -> bool:
        return False

    @override
    def call(self, name: str, caller: str, attributes: Attributes) -> AbstractContextManager[Span]:
        return _UNRECORDED

    @override
    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Span]:
        return _UNRECORDED

    @override
    def record(self, span: FinishedSpan, parent: str) -> None:
        pass

    @override
    def close(self) -> None:
        pass


_UNRECORDED: Final = nullcontext(Span())

NO_TRACES: Final = NoTraces()
