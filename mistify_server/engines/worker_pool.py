"""Pools of workers, which are started on demand and kept for later tasks."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context

from mistify.errors import ErrorCode, MistifyError
from mistify_server.engines.supervision import SupervisedWorker


class WorkerPool:
    """A limited number of workers, each lent to one borrower at a time in order of request.

    Loading TensorFlow, data and models takes longer than many tasks, so workers are kept, and a borrower gets
    the idle worker with most of the needed parts loaded. Starting a worker may take long, for example until a
    machine has room; in the meantime, the borrower takes any worker that becomes free.

    Args:
        start: Starts a worker with a given name; names of running workers are unique.
        size: Maximum number of workers.
    """

    def __init__(self, start: Callable[[str], Awaitable[SupervisedWorker]], size: int) -> None:
        self.size = size
        self._start = start
        self._names = deque(str(number) for number in range(size))
        self._workers: dict[SupervisedWorker, str] = {}
        self._idle: list[SupervisedWorker] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._turns: deque[asyncio.Future[SupervisedWorker]] = deque()
        self._closed = False

    @property
    def idle(self) -> bool:
        """Return whether a worker is waiting for a task, or will be once it has started."""
        return bool(self._idle) or len(self._starting) > self.waiting

    @property
    def alive(self) -> int:
        """Return the number of workers."""
        return len(self._workers)

    @property
    def busy(self) -> int:
        """Return the number of workers that are lent."""
        return len(self._workers) - len(self._idle)

    @property
    def waiting(self) -> int:
        """Return the number of borrowers that are waiting."""
        return sum(not turn.done() for turn in tuple(self._turns))

    @property
    def complete(self) -> bool:
        """Return whether the pool has all its workers."""
        return not self._names

    @asynccontextmanager
    async def worker(self, needs: frozenset[str]) -> AsyncIterator[SupervisedWorker]:
        """Lend a worker within the block; an exception in the block ends the worker.

        Raises:
            MistifyError: UNAVAILABLE, the pool is closed.
        """
        worker = await self._best_idle(needs) or await self._next_free()
        try:
            yield worker
        except BaseException:
            await self._end(worker)
            raise
        await self._give_back(worker)

    @asynccontextmanager
    async def replaced(
        self, start: Callable[[SupervisedWorker], Awaitable[SupervisedWorker]]
    ) -> AsyncIterator[SupervisedWorker]:
        """Lend a worker of another kind within the block, replacing one of the pool's workers, which ends.

        Args:
            start: Starts the replacement for a worker that has ended.

        Raises:
            MistifyError: UNAVAILABLE, the pool is closed.
        """
        worker = await self._best_idle(frozenset()) or await self._next_free()
        try:
            worker = await self._restarted(worker, start)
            yield worker
        finally:
            await self._end(worker)

    def start_one(self) -> None:
        """Start a worker for the next borrower, unless the pool is complete."""
        if self._names and not self._closed:
            self._start_next()

    async def close(self) -> None:
        """End all workers; no more are lent."""
        self._closed = True
        while turn := self._next_turn():
            turn.set_exception(_closed())
        for starting in self._starting:
            starting.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        for worker in list(self._workers):
            await self._end(worker)

    async def _best_idle(self, needs: frozenset[str]) -> SupervisedWorker | None:
        """Return the best of the idle workers that are still alive."""
        while self._idle:
            worker = max(self._idle, key=lambda worker: len(worker.warm & needs))
            self._idle.remove(worker)
            alive = False
            try:
                alive = await worker.alive()
            finally:
                if not alive:
                    await self._end(worker)
            if alive:
                return worker
        return None

    async def _next_free(self) -> SupervisedWorker:
        """Wait for a free worker, and start one unless the pool is complete."""
        if self._closed:
            raise _closed()
        turn: asyncio.Future[SupervisedWorker] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self._start_missing()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and not turn.exception():
                await self._give_back(turn.result())
            raise

    def _start_missing(self) -> None:
        while self._names and len(self._starting) < self.waiting and not self._closed:
            self._start_next()

    def _start_next(self) -> None:
        # Log lines about a worker's start do not belong to the job that is waiting for it.
        starting = asyncio.create_task(self._add(self._names.popleft()), context=Context())
        self._starting.add(starting)
        starting.add_done_callback(self._on_started)

    def _on_started(self, starting: asyncio.Task[None]) -> None:
        self._starting.discard(starting)
        self._start_missing()

    async def _add(self, name: str) -> None:
        try:
            worker = await self._start(name)
        except Exception as error:
            self._names.appendleft(name)
            if turn := self._next_turn():
                turn.set_exception(error)
            return
        self._workers[worker] = name
        await self._give_back(worker)

    async def _give_back(self, worker: SupervisedWorker) -> None:
        """Give a free worker to the longest-waiting borrower."""
        if turn := self._next_turn():
            turn.set_result(worker)
        elif not self._closed:
            self._idle.append(worker)
        else:
            await self._end(worker)

    async def _restarted(
        self, worker: SupervisedWorker, start: Callable[[SupervisedWorker], Awaitable[SupervisedWorker]]
    ) -> SupervisedWorker:
        """End a worker, and return its replacement."""
        await worker.kill()
        started = await start(worker)
        self._workers[started] = self._workers.pop(worker)
        return started

    def _next_turn(self) -> asyncio.Future[SupervisedWorker] | None:
        """Return the longest-waiting borrower; None if nobody is waiting."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                return turn
        return None

    async def _end(self, worker: SupervisedWorker) -> None:
        try:
            await worker.kill()
        finally:
            name = self._workers.pop(worker, None)
            if name is not None:
                self._names.appendleft(name)
            self._start_missing()


def _closed() -> MistifyError:
    return MistifyError(ErrorCode.UNAVAILABLE, "the engine has been stopped")
