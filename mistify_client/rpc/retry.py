"""Trying again: how long to wait after a failure of the connection, and when to give up."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from mistify.errors import ErrorCode, MistifyError

Position = TypeVar("Position")
Message = TypeVar("Message")
Answer = TypeVar("Answer")

#: Beyond any `longest`, and before a float overflows.
_MOST_DOUBLINGS = 100


@dataclass(frozen=True)
class Backoff:
    """Jittered exponential delays, in seconds, between the attempts to reach a server.

    `attempts` counts the failures in a row after which the client gives up; the default lets a
    server be away for about five minutes. `rng` gives numbers from [0, 1).
    """

    first: float = 0.1
    longest: float = 10.0
    attempts: int = 45
    wait: Callable[[float], None] = time.sleep
    rng: Callable[[], float] = random.random

    def pause(self, error: MistifyError, failures: int) -> None:
        """Wait before the next attempt.

        Raises:
            MistifyError: the given one, where another attempt is of no use.
        """
        if error.code is not ErrorCode.UNAVAILABLE or failures > self.attempts:
            raise error
        self.wait(self.delay(failures))

    def delay(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) * (0.5 + 0.5 * self.rng())


def retried(operation: Callable[[], Answer], backoff: Backoff) -> Answer:
    """The answer of an operation that is tried again whenever the connection fails.

    Raises:
        MistifyError: any failure but one of the connection, or one too many of those.
    """
    failures = 0
    while True:
        try:
            return operation()
        except MistifyError as error:
            failures += 1
            backoff.pause(error, failures)


def resumed(
    open_stream: Callable[[Position], Iterable[Message]],
    position: Position,
    advance: Callable[[Position, Message], Position],
    backoff: Backoff,
) -> Iterator[Message]:
    """The messages of a stream that is opened again, where it broke, whenever the connection fails.

    Args:
        open_stream: opens the stream at a position.
        position: where it starts.
        advance: the position after a message.
        backoff: how long to wait after how many failures in a row.

    Raises:
        MistifyError: any failure but one of the connection, or one too many of those.
    """
    failures = 0
    while True:
        try:
            for message in open_stream(position):
                position = advance(position, message)
                failures = 0
                yield message
            return
        except MistifyError as error:
            failures += 1
            backoff.pause(error, failures)
