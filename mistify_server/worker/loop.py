"""The worker process: the only place of the server where TensorFlow runs.

It reads one order per line from standard input, and writes what it has to say about each to standard
output (`mistify_server.tasks.tasks`). It ends with its parent: when standard input closes.
"""

import argparse
import errno
import os
import queue
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO, TypeAlias

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from mistify.errors import ErrorCode, MistifyError
from mistify_server.tasks.base import Message
from mistify_server.tasks.messages import HEARTBEAT_SECONDS, Answer, Heartbeat, Order, TaskProgress
from mistify_server.tasks.results import Result, TaskFailure
from mistify_server.tasks.tasks import Task

#: What is wrong where nothing can be written, whatever it is.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

#: Does a task.
Do: TypeAlias = Callable[[Task], Result]


def main() -> None:
    """Serve tasks until standard input closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="the server's store directory")
    options = parser.parse_args()
    work(lambda say: _runner(options.store, say))


def work(
    prepare: Callable[[Callable[[TaskProgress], None]], Do], heartbeat: float = HEARTBEAT_SECONDS
) -> None:
    """Do what standard input orders, until it closes.

    Args:
        prepare: makes what does the tasks, from what tells of their progress. It may take long: the end of
            the parent is watched, and heartbeats are told, from the first order on.
        heartbeat: seconds between two heartbeats.
    """
    # Taken as it is given: on a full disk none is found to be usable, and what is wrong is not told.
    tempfile.tempdir = os.environ.get("TMPDIR")
    bench = TaskLoop(_claim_stdout())
    threading.Thread(target=bench.read_orders, daemon=True).start()
    threading.Thread(target=bench.beat, args=(heartbeat,), daemon=True).start()
    do = prepare(bench.tell)
    while True:
        bench.fill_next(do)


class TaskLoop:
    """Where orders come in, and whence answers go out, from more threads than one."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers
        self._speaking = threading.Lock()
        self._orders: queue.Queue[Order] = queue.Queue()
        self._busy = threading.Event()
        self._ticket = 0

    def read_orders(self) -> None:
        """Take orders in until the parent ends, then end this process.

        It ends as well, with a trace in its log, at an order that it does not understand: of a server that
        was installed anew meanwhile.
        """
        try:
            for line in sys.stdin:
                self._busy.set()
                self._orders.put(Order.model_validate_json(line))
        except ValueError:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def beat(self, seconds: float) -> None:
        """Say every so many seconds that this process is alive, while it has an order."""
        while self._busy.wait():
            self._say(Heartbeat())
            time.sleep(seconds)

    def fill_next(self, do: Do) -> None:
        """Do the next task, and say how it ended."""
        order = self._orders.get()
        self._ticket = order.ticket
        result = _outcome(do, order.task)
        # Before the result: with it the next order may come.
        self._busy.clear()
        self._say(Answer(ticket=order.ticket, content=result))

    def tell(self, progress: TaskProgress) -> None:
        """Say how far the current task is."""
        self._say(Answer(ticket=self._ticket, content=progress))

    def _say(self, message: Message) -> None:
        with self._speaking:
            self._answers.write(message.model_dump_json() + "\n")
            self._answers.flush()


def _outcome(do: Do, task: Task) -> Result:
    """The result of a task, or why there is none.

    Raises:
        MemoryError: there was too little memory. It ends this process: what it has loaded for earlier
            tasks may be what filled the memory, and a new one may well succeed.
    """
    try:
        return do(task)
    except MemoryError:
        raise
    except MistifyError as error:
        return TaskFailure(code=error.code.name, message=error.message, problems=error.problems)
    except FloatingPointError as error:
        return TaskFailure(code=ErrorCode.INTERNAL.name, message=str(error))
    except OSError as error:
        _log_exception()
        code = ErrorCode.UNAVAILABLE if error.errno in _NO_ROOM else ErrorCode.INTERNAL
        return TaskFailure(code=code.name, message=f"{type(error).__name__}: {error}")
    except Exception as error:
        # Whatever an executor got wrong it would get wrong again.
        _log_exception()
        return TaskFailure(code=ErrorCode.INTERNAL.name, message=f"{type(error).__name__}: {error}")


def _log_exception() -> None:
    with suppress(OSError):  # a log on a full disk is no reason to die of
        traceback.print_exc()


def _runner(store: Path, say: Callable[[TaskProgress], None]) -> Do:
    # TensorFlow takes seconds to import: after the parent's end is watched.
    from mistify_server.store.artifacts import artifacts_of  # noqa: PLC0415
    from mistify_server.worker.runner import TaskRunner  # noqa: PLC0415

    runner = TaskRunner(artifacts_of(store), say)

    def do(task: Task) -> Result:
        with exhaustion_told():
            return runner.do(task)

    return do


@contextmanager
def exhaustion_told() -> Iterator[None]:
    """Tell apart what TensorFlow takes for one: too little memory, and a disk that is full.

    Raises:
        OSError: ENOSPC, there is no room on a disk, or in a quota.
        MemoryError: whatever else is exhausted.
    """
    from tensorflow.errors import ResourceExhaustedError  # noqa: PLC0415

    try:
        yield
    except ResourceExhaustedError as error:
        if any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT)):
            raise OSError(errno.ENOSPC, str(error)) from error
        raise MemoryError(str(error)) from error


def _claim_stdout() -> TextIO:
    """Standard output for answers alone; whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers
