"""Repeated attempts at calls and streams whose connection fails."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt

from mistify.errors import ErrorCode, MistifyError

Position = TypeVar("Position")
Message = TypeVar("Message")
Answer = TypeVar("Answer")

#: Beyond any `longest`, and before a float overflows.
_MOST_DOUBLINGS = 100

#: Failures in a row (some 6 seconds) after which what a device runs on no longer waits for a server.
FEW_ATTEMPTS = 6


@dataclass(frozen=True)
class Backoff:
    """Jittered exponential delays, in seconds, between the attempts to reach a server.

    `attempts` counts the failures in a row after which the client gives up; the default lets a
    server be away for about five minutes. `rng` returns numbers from [0, 1).
    """

    first: float = 0.1
    longest: float = 10.0
    attempts: int = 45
    wait: Callable[[float], None] = time.sleep
    rng: Callable[[], float] = random.random

    def retrying(self) -> Retrying:
        """Return attempts that are repeated while the server is away; the last error is raised."""
        return Retrying(
            retry=retry_if_exception(_is_outage),
            stop=stop_after_attempt(self.attempts + 1),
            wait=lambda state: self.delay(state.attempt_number),
            sleep=self.wait,
            reraise=True,
        )

    def delay(self, failures: int) -> float:
        """Return the delay after a number of failures in a row."""
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) * (0.5 + 0.5 * self.rng())


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, MistifyError) and error.code is ErrorCode.UNAVAILABLE


def retried(operation: Callable[[], Answer], backoff: Backoff) -> Answer:
    """Return the answer of an operation, tried again whenever the connection fails.

    Raises:
        MistifyError: Any failure but one of the connection, or one too many of those.
    """
    return backoff.retrying()(operation)


def resumed(
    open_stream: Callable[[Position], Iterable[Message]],
    position: Position,
    advance: Callable[[Position, Message], Position],
    backoff: Backoff,
) -> Iterator[Message]:
    """Yield the messages of a stream that is opened again, where it broke, whenever the connection fails.

    Args:
        open_stream: Opens the stream at a position.
        position: The position of the first message.
        advance: Returns the position after a message.
        backoff: The delays between attempts.

    Raises:
        MistifyError: Any failure but one of the connection, or one too many of those.
    """
    for attempt in backoff.retrying():
        with attempt:
            for message in open_stream(position):
                position = advance(position, message)
                # The count of failures starts again: this attempt has got somewhere.
                attempt.retry_state.attempt_number = 1
                yield message
