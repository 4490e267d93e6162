"""Calls are answered while many others read large files."""

import asyncio
import os
from threading import Event

from mistify_server.threads import THREADS, use_enough_threads


def test_a_call_does_not_wait_for_as_many_others_as_asyncio_has_threads() -> None:
    others = min(THREADS - 1, (os.cpu_count() or 1) + 4)

    async def call() -> bool:
        use_enough_threads()
        answered = Event()
        reading = [asyncio.create_task(asyncio.to_thread(answered.wait, 5)) for _ in range(others)]
        await asyncio.sleep(0)  # they have begun
        await asyncio.to_thread(answered.set)
        return all(await asyncio.gather(*reading))

    assert asyncio.run(call())
