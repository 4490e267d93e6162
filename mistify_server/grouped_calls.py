"""Calls that are answered on a thread, many at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Final, Generic, NamedTuple, TypeVar

from mistify.errors import is_outage

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")

#: Default maximum number of calls that are answered together.
MOST_TOGETHER: Final = 256

#: Default pause after a group of several, in seconds, in which its callers may call again, to be answered
#: together: the smaller the groups, the more time goes into what the calls of each have in common.
_PAUSE_SECONDS: Final = 0.01


def _nothing(_asked: object, _answer: object) -> None:
    """Do nothing with an answer before its caller has it."""


class _Waiting(NamedTuple, Generic[_Asked, _Answer]):
    asked: _Asked
    answered: "asyncio.Future[_Answer]"


class GroupedCalls(Generic[_Asked, _Answer]):
    """Answers calls on a thread: those that arrive during an answer are answered together by the next one.

    Under load, many calls share one change of threads and what their answers have in common, such as a
    transaction. A call that comes alone never waits for others, except in `pause_seconds`. Use it from one
    event loop.

    Args:
        answer: Returns the answer or the error of each call, in order. If it raises an error that is no
            outage, the calls are answered one by one.
        most: Maximum number of calls that are answered together.
        pause_seconds: Pause after each group; None for a short one after groups of several calls.
        on_answer: Called on the event loop with each call and its answer, even if its caller has gone. If it
            raises an error, the caller gets that.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[_Asked]], Sequence[_Answer | Exception]],
        most: int = MOST_TOGETHER,
        *,
        pause_seconds: float | None = None,
        on_answer: Callable[[_Asked, _Answer], None] = _nothing,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._answer = answer
        self._most = most
        self._pause_seconds = pause_seconds
        self._on_answer = on_answer
        self._sleep = sleep
        self._waiting: list[_Waiting[_Asked, _Answer]] = []
        self._answering: asyncio.Task[None] | None = None

    async def __call__(self, asked: _Asked) -> _Answer:
        """Return the answer to a call, or raise its error."""
        answered: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(asked, answered))
        if self._answering is None or self._answering.done():
            # A context of its own: it serves many callers, and belongs to none of them.
            self._answering = asyncio.create_task(self._answer_waiting(), context=Context())
        return await answered

    async def _answer_waiting(self) -> None:
        while waiting := [each for each in self._waiting if not each.answered.done()]:  # its caller has gone
            together, self._waiting = waiting[: self._most], waiting[self._most :]
            outcomes = await asyncio.to_thread(self._outcomes, [each.asked for each in together])
            for each, outcome in zip(together, outcomes, strict=True):
                self._settle(each, outcome)
            if self._pause_seconds is not None:
                await self._sleep(self._pause_seconds)
            elif len(together) > 1:
                await self._sleep(_PAUSE_SECONDS)

    def _settle(self, waiting: _Waiting[_Asked, _Answer], outcome: _Answer | Exception) -> None:
        try:
            if not isinstance(outcome, Exception):
                self._on_answer(waiting.asked, outcome)
        except Exception as error:
            outcome = error
        if waiting.answered.done():  # its caller has gone
            return
        if isinstance(outcome, Exception):
            waiting.answered.set_exception(outcome)
        else:
            waiting.answered.set_result(outcome)

    def _outcomes(self, asked: Sequence[_Asked]) -> Sequence[_Answer | Exception]:
        try:
            return self._answer(asked)
        except Exception as error:
            if len(asked) == 1 or is_outage(error):
                return [error] * len(asked)
        # One of them cannot be answered, which must not affect the others.
        return [outcome for each in asked for outcome in self._outcomes([each])]
