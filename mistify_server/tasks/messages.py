"""The wire between the server and a worker process.

A worker reads one `Order` per line (JSON) and answers with any number of `TaskProgress` lines and then one
result line, all under the order's ticket; in between it says with heartbeats that it is alive. Checkpoints
and packages never travel on this wire: they are artifacts, named by digest.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from mistify.config.metric import Metric
from mistify_server.tasks.base import Message
from mistify_server.tasks.results import Result
from mistify_server.tasks.tasks import Task


class TaskProgress(Message):
    """How far a task is. `accuracy`, by `metric`, is None while it has not been measured."""

    kind: Literal["progress"] = "progress"
    stage: str
    step: int
    total_steps: int
    costs: dict[str, float] = Field(default_factory=dict)
    accuracy: float | None = None
    metric: Metric = Metric.ACCURACY


class Order(Message):
    """A task for a worker. `ticket` is different for every attempt at a task."""

    ticket: int
    task: Annotated[Task, Field(discriminator="kind")]


class Answer(Message):
    """What a worker says about an order; `ticket` is the order's, so that what comes late is told apart."""

    kind: Literal["answer"] = "answer"
    ticket: int
    content: Annotated[Result | TaskProgress, Field(discriminator="kind")]


class Heartbeat(Message):
    """A worker with an order is alive, however long it has had nothing else to say."""

    kind: Literal["heartbeat"] = "heartbeat"


#: The stage of a task whose worker loads a model that a user gave: should it end the worker, that is the
#: model's fault.
LOADING = "loading the model"

#: Seconds between two heartbeats.
HEARTBEAT_SECONDS = 5.0

SAID: TypeAdapter[Answer | Heartbeat] = TypeAdapter(
    Annotated[Answer | Heartbeat, Field(discriminator="kind")]
)
