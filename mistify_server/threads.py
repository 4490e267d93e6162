"""The threads of a server, on which calls read the store and files."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from threading import Lock
from typing import Any, Final, ParamSpec, TypeVar

from typing_extensions import override

from mistify_server.identity.callers import CallerId, known_caller

#: Number of threads, however few processors there are: digests of large files take minutes, and other calls
#: are to be answered meanwhile. The pool of connections to a database is larger.
THREADS: Final = 32

_P = ParamSpec("_P")
_T = TypeVar("_T")


class FairThreads(ThreadPoolExecutor):
    """Threads that no caller can keep from the others, however many calls it makes.

    A caller may use as many threads as it leaves free, so half of them while nobody else needs any. The rest
    of its work waits, in order. Work of the server itself has no caller, and does not wait for theirs.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, "server")
        self._most = threads
        self._changing = Lock()
        self._used: Counter[CallerId | None] = Counter()
        self._waiting: dict[CallerId, deque[Callable[[], None]]] = {}

    @override
    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **options: _P.kwargs) -> Future[_T]:
        caller, done = known_caller(), Future[_T]()
        begin = partial(self._begin, caller, done, partial(fn, *args, **options))
        with self._changing:
            if caller is not None and (caller in self._waiting or not self._may_begin(caller)):
                self._waiting.setdefault(caller, deque()).append(begin)
            else:
                begin()
        return done

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._changing:
            for begin in chain.from_iterable(self._waiting.values()):
                begin()
            self._waiting.clear()
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _may_begin(self, caller: CallerId) -> bool:
        return self._used[caller] < self._most - self._used.total()

    def _begin(self, caller: CallerId | None, done: Future[Any], work: Callable[[], Any]) -> None:
        """Have a thread do some work, for who holds the lock."""
        self._used[caller] += 1
        super().submit(self._run, caller, done, work)

    def _run(self, caller: CallerId | None, done: Future[Any], work: Callable[[], Any]) -> None:
        try:
            if done.set_running_or_notify_cancel():
                _settle(done, work)
        finally:
            with self._changing:
                self._used -= Counter([caller])
                self._begin_waiting()

    def _begin_waiting(self) -> None:
        """Begin what may begin now; callers take turns."""
        for caller, works in tuple(self._waiting.items()):
            if self._may_begin(caller):
                works.popleft()()
                del self._waiting[caller]
                if works:
                    self._waiting[caller] = works  # behind the others


def _settle(done: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # as `ThreadPoolExecutor` does
        done.set_exception(error)
    else:
        done.set_result(result)


def use_enough_threads() -> None:
    """Have the running event loop use as many threads for `asyncio.to_thread` as a server needs.

    By default, it uses four more than there are processors.
    """
    asyncio.get_running_loop().set_default_executor(FairThreads(THREADS))
