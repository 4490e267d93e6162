"""Calls are answered while many others read large files."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Semaphore

from mistify_server.identity.callers import Caller
from mistify_server.threads import THREADS, FairThreads, use_enough_threads
from tests.support.callers import called_by

#: Seconds after which a test fails: no work takes long, but the machine may be busy.
DEADLINE = 60


def test_a_call_does_not_wait_for_as_many_others_as_asyncio_has_threads() -> None:
    others = min(THREADS - 1, (os.cpu_count() or 1) + 4)

    async def call() -> bool:
        use_enough_threads()
        answered = Event()
        reading = [asyncio.create_task(asyncio.to_thread(answered.wait, DEADLINE)) for _ in range(others)]
        await asyncio.sleep(0)  # they have begun
        await asyncio.to_thread(answered.set)
        return all(await asyncio.gather(*reading))

    assert asyncio.run(call())


@contextmanager
def gated() -> Iterator[tuple[Callable[[], None], Semaphore]]:
    """Yield work that waits until the end of the block, and a semaphore that counts what has begun."""
    begun, gate = Semaphore(0), Event()

    def work() -> None:
        begun.release()
        assert gate.wait(DEADLINE)

    try:
        yield work, begun
    finally:
        gate.set()


def caller(name: str) -> Caller:
    return Caller(name, frozenset(), "default")


def test_no_number_of_calls_of_some_callers_keeps_the_threads_from_others() -> None:
    with FairThreads(8) as threads:
        with gated() as (work, begun):
            results = []
            for name, running in (("a", 4), ("b", 2), ("c", 1)):
                with called_by(caller(name)):
                    results += [threads.submit(work) for _ in range(20)]
                assert all(begun.acquire(timeout=DEADLINE) for _ in range(running))
                assert not begun.acquire(blocking=False)
            with called_by(caller("d")):
                assert threads.submit(lambda: "answered").result(DEADLINE) == "answered"
            assert threads.submit(lambda: "the server's own").result(DEADLINE) == "the server's own"
        assert [result.result(DEADLINE) for result in results] == [None] * 60


def test_work_that_waits_keeps_its_order_and_may_be_cancelled() -> None:
    done: list[int] = []
    with FairThreads(2) as threads:
        with gated() as (work, begun), called_by(caller("a")):
            first = threads.submit(work)
            assert begun.acquire(timeout=DEADLINE)
            others = [threads.submit(done.append, number) for number in range(5)]
            assert others[2].cancel()
        assert first.result(DEADLINE) is None
        assert [other.result(DEADLINE) for other in others if not other.cancelled()] == [None] * 4
    assert done == [0, 1, 3, 4]


def test_errors_reach_the_call() -> None:
    with FairThreads(2) as threads, called_by(caller("a")):
        error = threads.submit(int, "x").exception(DEADLINE)
    assert isinstance(error, ValueError)


def test_what_waits_at_the_end_is_still_done() -> None:
    threads = FairThreads(2)
    with gated() as (work, begun), called_by(caller("a")):
        threads.submit(work)
        assert begun.acquire(timeout=DEADLINE)
        last = threads.submit(lambda: "done")
        threads.shutdown(wait=False)
    assert last.result(DEADLINE) == "done"
