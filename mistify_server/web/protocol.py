"""HTTP on one connection, with timeouts for requests and responses."""

import asyncio
from enum import Enum, auto
from typing import Any, Final

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Timeout in seconds for the head of a request, from the start of the connection or its last response.
HEAD_SECONDS: Final = 10.0

#: Seconds within which a body must deliver `_LEAST_BODY_BYTES` or end, and a caller must read part of a
#: response.
PROGRESS_SECONDS: Final = 20.0

_LEAST_BODY_BYTES: Final = 10_000


class _Phase(Enum):
    """The phase of a connection, named after the event that it waits for."""

    HEAD = auto()
    BODY = auto()
    ANSWER = auto()


class TimedProtocol(H11Protocol):
    """HTTP on one connection, which is closed if the caller keeps the server waiting.

    Attributes:
        lost: Done when the connection is closed.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self._phase: _Phase | None = None
        self._waiting_since = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0
        self._unsent = 0
        self._sent_some = False

    @property
    def idle_since(self) -> float | None:
        """Return the time since which the server has been waiting for the caller, on the event loop's clock.

        It is None while a request is being handled, or its body is waiting to be read.
        """
        waited_for = self._phase is not _Phase.ANSWER and not (self.flow and self.flow.read_paused)
        return self._waiting_since if waited_for else None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._follow()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()
        if not self.lost.done():
            self.lost.set_result(None)

    @override
    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._phase is _Phase.BODY:
            self._waiting_since = self.loop.time()
        super().data_received(data)
        self._follow()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._sent_some = True

    def _follow(self) -> None:
        """Start the timeout of the connection's phase if the phase has changed."""
        phase = self._current_phase()
        if phase is self._phase or self.lost.done():
            return
        self._phase, self._received, self._waiting_since = phase, 0, self.loop.time()
        self._start_timer(HEAD_SECONDS if phase is _Phase.HEAD else PROGRESS_SECONDS)

    def _current_phase(self) -> _Phase:
        if self.conn.their_state is h11.IDLE:
            return _Phase.HEAD
        if self.conn.their_state is not h11.SEND_BODY:
            return _Phase.ANSWER
        # The rest of a body after its response counts as waiting for the next head.
        return _Phase.HEAD if self.cycle.response_complete else _Phase.BODY

    def _check_progress(self) -> None:
        """Close the connection unless the caller has made progress since the last check."""
        if self._has_progressed():
            self._start_timer(PROGRESS_SECONDS)
        else:
            self.transport.abort()

    def _has_progressed(self) -> bool:
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        sent, self._sent_some = self._sent_some or self._unsent < before, False
        received, self._received = self._received, 0
        if self._unsent:
            return sent or not before
        if self._phase is _Phase.BODY:
            return received >= _LEAST_BODY_BYTES or self.flow.read_paused
        return self._phase is _Phase.ANSWER

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._check_progress)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
