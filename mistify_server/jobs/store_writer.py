"""Writes to a store that may be temporarily unavailable: locked by another process, or on a full disk."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.wait import wait_random_exponential

from mistify.errors import is_outage

#: First and longest delay between retries, in seconds.
_FIRST: Final = 0.5
_LONGEST: Final = 10.0

_log = logging.getLogger(__name__)

_Value = TypeVar("_Value")


def until_available(
    on_outage: Callable[[BaseException], object],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncRetrying:
    """Return attempts that repeat while something is unavailable.

    Args:
        on_outage: Called with the error before each wait.
        sleep: Waits for a number of seconds.
    """

    def report(state: RetryCallState) -> None:
        if state.outcome is not None and (error := state.outcome.exception()) is not None:
            on_outage(error)

    return AsyncRetrying(
        retry=retry_if_exception(is_outage),
        wait=wait_random_exponential(multiplier=_FIRST, max=_LONGEST),
        before_sleep=report,
        sleep=sleep,
        reraise=True,
    )


async def completed(work: Coroutine[Any, Any, _Value]) -> _Value:
    """Return the result of work that runs to completion even if its caller is cancelled."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # otherwise, asyncio logs it, because nobody waits for it any more
        raise


class StoreWriter:
    """Writes one change at a time on a separate thread, and retries while the store is unavailable."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "store-writer")
        self._away = False

    async def write(self, work: Callable[[], _Value]) -> _Value:
        """Return the result of a function. A cancellation ends the wait for the store, not a running write.

        Raises:
            MistifyError: The store rejects the change permanently.
        """
        async for attempt in until_available(self._note_outage):
            with attempt:
                value = await completed(self._on_thread(work))
        if self._away:
            self._away = False
            _log.info("the store is available again")
        return value

    async def _on_thread(self, work: Callable[[], _Value]) -> _Value:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _note_outage(self, error: BaseException) -> None:
        if not self._away:
            self._away = True
            _log.warning("jobs are waiting for the store: %s", error)
