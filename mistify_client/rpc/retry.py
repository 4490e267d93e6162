"""Retries of calls and streams after connection failures."""

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

#: Beyond any `longest`, but below the overflow of a float.
_MOST_DOUBLINGS = 100

#: Consecutive failures (about 6 seconds) after which `load` stops waiting for a server.
FEW_ATTEMPTS = 6


@dataclass(frozen=True)
class Backoff:
    """Jittered exponential delays, in seconds, between attempts to reach a server.

    `attempts` is the number of consecutive failures after which the client gives up; the default covers an
    outage of about five minutes. `rng` returns numbers from [0, 1).
    """

    first: float = 0.1
    longest: float = 10.0
    attempts: int = 45
    wait: Callable[[float], None] = time.sleep
    rng: Callable[[], float] = random.random

    def retrying(self) -> Retrying:
        """Return attempts that are repeated while the server is unreachable; the last error is raised."""
        return Retrying(
            retry=retry_if_exception(_is_outage),
            stop=stop_after_attempt(self.attempts + 1),
            wait=lambda state: self.delay(state.attempt_number),
            sleep=self.wait,
            reraise=True,
        )

    def delay(self, failures: int) -> float:
        """Return the delay after a number of consecutive failures."""
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) * (0.5 + 0.5 * self.rng())


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, MistifyError) and error.code is ErrorCode.UNAVAILABLE


def retried(operation: Callable[[], Answer], backoff: Backoff) -> Answer:
    """Return the result of an operation, repeated after connection failures.

    Raises:
        MistifyError: Another failure, or too many connection failures.
    """
    return backoff.retrying()(operation)


def resumed(
    open_stream: Callable[[Position], Iterable[Message]],
    position: Position,
    advance: Callable[[Position, Message], Position],
    backoff: Backoff,
) -> Iterator[Message]:
    """Yield the messages of a stream, which is reopened at the current position after connection failures.

    Args:
        open_stream: Opens the stream at a position.
        position: The position of the first message.
        advance: Returns the position after a message.
        backoff: The delays between attempts.

    Raises:
        MistifyError: Another failure, or too many connection failures.
    """
    for attempt in backoff.retrying():
        with attempt:
            for message in open_stream(position):
                position = advance(position, message)
                # Restart the count of failures: this attempt has made progress.
                attempt.retry_state.attempt_number = 1
                yield message
