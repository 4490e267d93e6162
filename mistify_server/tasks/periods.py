"""What a worker did during a task, for traces."""

from mistify_server.tasks.base import Message


class Period(Message):
    """A period of an activity (`executors.timing`), in nanoseconds since 1970.

    Attributes:
        within: Index of the period that contains it; None for outermost ones.
        failed: Whether an exception ended it.
    """

    activity: str
    began_ns: int
    ended_ns: int
    within: int | None = None
    failed: bool = False


class WorkerSpan(Message):
    """The work on a task, by the clock of the worker's machine.

    Attributes:
        host: Name of the machine.
        pid: Id of the process.
        left_out: Number of further periods, which were too many.
    """

    began_ns: int
    ended_ns: int
    host: str
    pid: int
    periods: tuple[Period, ...] = ()
    left_out: int = 0
