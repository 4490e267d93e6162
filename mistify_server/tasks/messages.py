"""The protocol between the server and a worker process.

A worker reads one JSON `Order` per line. It writes any number of `TaskProgress` lines and then one `Answer`,
all with the order's ticket, and a `Heartbeat` every few seconds. Checkpoints and packages are not sent:
messages refer to them as artifacts, by digest.
"""

import errno
from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.base import Message
from mistify_server.tasks.periods import WorkerSpan
from mistify_server.tasks.results import Result
from mistify_server.tasks.tasks import Task

#: Callback for the progress of a task.
OnProgress: TypeAlias = Callable[[ProgressUpdate], None]


class Order(Message):
    """A task for a worker.

    Attributes:
        ticket: Unique to each attempt at a task.
        traceparent: The position of the attempt in a trace; empty if it is not traced.
    """

    ticket: int
    traceparent: str = ""
    task: Annotated[Task, Field(discriminator="kind")]


class TaskProgress(Message):
    """The progress of an order's task; `ticket` is the order's."""

    kind: Literal["progress"] = "progress"
    ticket: int
    update: ProgressUpdate


class Answer(Message):
    """The result of an order; `ticket` is the order's, to identify late answers.

    Attributes:
        work: The periods of the worker's activities; None if the order is not part of a trace.
    """

    kind: Literal["answer"] = "answer"
    ticket: int
    result: Annotated[Result, Field(discriminator="kind")]
    work: WorkerSpan | None = None


class Heartbeat(Message):
    """A signal that a worker is alive, independent of the duration of its task."""

    kind: Literal["heartbeat"] = "heartbeat"


#: The stage in which a worker loads a user's model: if the worker dies in this stage, the model is at fault.
LOADING = "loading the model"

#: The exit code of a worker that runs out of memory.
OUT_OF_MEMORY: Final = errno.ENOMEM

#: Seconds between two heartbeats.
HEARTBEAT_SECONDS = 5.0

WorkerMessage: TypeAlias = Answer | TaskProgress | Heartbeat

WORKER_MESSAGE: TypeAdapter[WorkerMessage] = TypeAdapter(
    Annotated[WorkerMessage, Field(discriminator="kind")]
)
