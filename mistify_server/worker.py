"""The worker process: the only place of the server where TensorFlow runs.

It reads one task per line from standard input, and writes progress and one result per task to standard
output (`mistify_server.tasks`). It ends with its parent: when standard input closes.
"""

import argparse
import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from mistify.errors import ErrorCode, MistifyError
from mistify_server.tasks import TASK, Progress, Task, TaskFailure

if TYPE_CHECKING:
    from mistify_server.workshop import Workshop


def main() -> None:
    """Serve tasks until standard input closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="the server's store directory")
    options = parser.parse_args()
    answers = _claim_stdout()
    tasks: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_tasks, args=(tasks,), daemon=True).start()
    # TensorFlow takes seconds to import: after the parent's end is watched.
    from mistify_server.store.artifacts import artifacts_of  # noqa: PLC0415
    from mistify_server.workshop import Workshop  # noqa: PLC0415

    def say(message: Progress) -> None:
        answers.write(message.model_dump_json() + "\n")
        answers.flush()

    workshop = Workshop(artifacts_of(options.store), say)
    while True:
        task = TASK.validate_python(json.loads(tasks.get()))
        answers.write(_answer(workshop, task) + "\n")
        answers.flush()


def _answer(workshop: "Workshop", task: Task) -> str:
    try:
        return workshop.do(task).model_dump_json()
    except MistifyError as error:
        problems = [(p.place, p.given, p.expected, p.fix) for p in error.problems]
        return TaskFailure(code=error.code.name, message=error.message, problems=problems).model_dump_json()
    except FloatingPointError as error:
        return TaskFailure(code=ErrorCode.INTERNAL.name, message=str(error)).model_dump_json()


def _claim_stdout() -> TextIO:
    """Standard output for answers alone; whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _read_tasks(tasks: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        tasks.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
