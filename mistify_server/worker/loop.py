"""The main loop of the worker process, the only server process that runs TensorFlow.

It reads one order per line from standard input and writes messages to standard output
(`mistify_server.tasks.messages`). It ends with its parent, when standard input closes.
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
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, TextIO, TypeAlias

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# NumPy's threads wait busily for each other: with two on shared cores, least squares took 4.6 times the
# processor time of one.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from executors.timing import observed
from mistify.errors import ErrorCode, MistifyError
from mistify.files.places import make_files_private
from mistify.files.writing import NO_ROOM
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.base import Message
from mistify_server.tasks.messages import (
    HEARTBEAT_SECONDS,
    OUT_OF_MEMORY,
    Answer,
    Heartbeat,
    OnProgress,
    Order,
    TaskProgress,
)
from mistify_server.tasks.results import Result, TaskFailure
from mistify_server.tasks.tasks import Task
from mistify_server.worker.imports import quick_imports
from mistify_server.worker.periods import PeriodRecorder
from mistify_server.worker.redaction import redacted

#: Seconds for which a worker tries to store its results, so that a short outage does not cost a long task.
_PATIENCE_SECONDS: Final = 600.0

#: Runs a task.
Do: TypeAlias = Callable[[Task], Result]


def main() -> None:
    """Run tasks until standard input closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="the server's store directory")
    options = parser.parse_args()
    make_files_private()
    # TensorFlow's converter itself creates this interpreter every time.
    warnings.filterwarnings("ignore", r"\s*Warning: tf.lite.Interpreter is deprecated")
    work(lambda report: _runner(options.store, report), directories=(options.store,))


def work(
    prepare: Callable[[OnProgress], Do],
    heartbeat: float = HEARTBEAT_SECONDS,
    directories: Sequence[Path] = (),
) -> None:
    """Run the tasks of the orders on standard input until it closes.

    Args:
        prepare: Returns the function that runs tasks, given the callback for their progress. It may take
            long; in the meantime, the parent is watched and heartbeats are sent.
        heartbeat: Seconds between heartbeats.
        directories: Directories of the server, which error messages must not contain.
    """
    # Python's own search tries to write a file. On a full disk, it would fail here and hide the cause.
    tempfile.tempdir = os.environ.get("TMPDIR")
    loop = TaskLoop(_claim_stdout(), directories)
    threading.Thread(target=loop.read_orders, daemon=True).start()
    threading.Thread(target=loop.beat, args=(heartbeat,), daemon=True).start()
    do = prepare(loop.report)
    while True:
        loop.run_next(do)


class TaskLoop:
    """Receives orders and sends messages; its methods run on different threads."""

    def __init__(self, answers: TextIO, directories: Sequence[Path] = ()) -> None:
        self._answers = answers
        self._directories = directories
        self._sending = threading.Lock()
        self._orders: queue.Queue[Order] = queue.Queue()
        self._busy = threading.Event()
        self._ticket = 0

    def read_orders(self) -> None:
        """Receive orders until the parent ends, then end this process.

        So does any failure, with a traceback in its log: nobody else reads orders. The server must have been
        upgraded if one is invalid.
        """
        try:
            for line in sys.stdin:
                self._busy.set()
                self._orders.put(Order.model_validate_json(line))
        except Exception:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def beat(self, seconds: float) -> None:
        """Send a heartbeat at this interval while there is an order."""
        while self._busy.wait():
            self._send(Heartbeat())
            time.sleep(seconds)

    def run_next(self, do: Do) -> None:
        """Run the next task and send its result."""
        order = self._orders.get()
        self._ticket = order.ticket
        recorder = PeriodRecorder() if order.traceparent else None
        if recorder is not None:
            _log(f"the {order.task.kind} task is part of a trace: {order.traceparent}")
        try:
            with nullcontext() if recorder is None else observed(recorder.activity):
                result = redacted(_result_of(do, order.task), order.task, self._directories)
        except MemoryError as error:
            _log_exception()
            raise SystemExit(OUT_OF_MEMORY) from error
        # Clear this before the result, after which the next order may arrive.
        self._busy.clear()
        work = None if recorder is None else recorder.span()
        self._send(Answer(ticket=order.ticket, result=result, work=work))

    def report(self, update: ProgressUpdate) -> None:
        """Send the progress of the current task."""
        self._send(TaskProgress(ticket=self._ticket, update=update))

    def _send(self, message: Message) -> None:
        with self._sending:
            self._answers.write(message.model_dump_json() + "\n")
            self._answers.flush()


def _result_of(do: Do, task: Task) -> Result:
    """Return the result of a task, or its failure.

    Raises:
        MemoryError: The task ran out of memory. This ends the process: models of earlier tasks may fill the
            memory, and a new process may succeed.
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
        code = ErrorCode.UNAVAILABLE if error.errno in NO_ROOM else ErrorCode.INTERNAL
        reason = f": {error.strerror}" if error.strerror else ""
        return TaskFailure(code=code.name, message=f"{type(error).__name__}{reason}")
    except Exception as error:
        # A bug in an executor: a retry would fail as well.
        _log_exception()
        return TaskFailure(code=ErrorCode.INTERNAL.name, message=f"{type(error).__name__}: {error}")


def _log_exception() -> None:
    _log(traceback.format_exc())


def _log(text: str) -> None:
    with suppress(OSError):  # the disk may be full
        print(text, file=sys.stderr, flush=True)


def _runner(store: Path, report: OnProgress) -> Do:
    # TensorFlow takes seconds to import, so first start to watch for the parent's end.
    with quick_imports():
        from mistify_server.store.objects.binding import opened_artifacts  # noqa: PLC0415
        from mistify_server.worker.runner import TaskRunner  # noqa: PLC0415

    runner = TaskRunner(opened_artifacts(store, _PATIENCE_SECONDS), report)

    def do(task: Task) -> Result:
        with resource_errors_as_python_errors():
            return runner.run(task)

    return do


@contextmanager
def resource_errors_as_python_errors() -> Iterator[None]:
    """Translate TensorFlow's common error for full disks and exhausted memory into Python's two errors.

    Raises:
        OSError: ENOSPC, a disk is full or a quota exceeded.
        MemoryError: Any other resource is exhausted.
    """
    from tensorflow.errors import ResourceExhaustedError  # noqa: PLC0415

    try:
        yield
    except ResourceExhaustedError as error:
        if any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT)):
            raise OSError(errno.ENOSPC, str(error)) from error
        raise MemoryError(str(error)) from error


def _claim_stdout() -> TextIO:
    """Reserve standard output for messages, and redirect other output to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers
