"""HTTP on one connection, within time limits for requests and answers."""

import asyncio
from enum import Enum, auto
from typing import Any, Final

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds until the head of a request has come, from the beginning of a connection or the last answer on it.
HEAD_SECONDS: Final = 10.0

#: Seconds in which a body brings `_LEAST_BODY_BYTES` or ends, and in which a caller takes some of an answer.
PROGRESS_SECONDS: Final = 20.0

_LEAST_BODY_BYTES: Final = 10_000


class _Phase(Enum):
    """The phase of a connection: the event that it waits for."""

    HEAD = auto()
    BODY = auto()
    ANSWER = auto()


class TimedProtocol(H11Protocol):
    """HTTP on one connection, which is closed where its caller leaves the server waiting.

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
        """Return since when the caller has the next thing to do, by the clock of the event loop.

        It is None while a request is answered, or its body waits to be read.
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
        """Start the time limit of the phase that the connection is in, if that has changed."""
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
        # The rest of a body that was answered already is nothing but a wait for the next head.
        return _Phase.HEAD if self.cycle.response_complete else _Phase.BODY

    def _check_progress(self) -> None:
        """Close the connection, unless its caller has done its part since the last time."""
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
