"""The work of a worker as a part of a trace."""

from collections.abc import Sequence

from mistify_server.tasks.periods import Period, WorkerSpan
from mistify_server.tracing.traces import FinishedSpan


def finished_span(work: WorkerSpan, error: str = "") -> FinishedSpan:
    """Return the work on a task with the periods of its activities.

    Args:
        error: Why the task failed; empty if it did not.
    """
    attributes: dict[str, str | int] = {"host.name": work.host, "process.pid": work.pid}
    attributes |= {"mistify.activities_left_out": work.left_out} if work.left_out else {}
    children = _children(work.periods, None)
    return FinishedSpan("worker", work.began_ns, work.ended_ns, attributes, error, children)


def _children(periods: Sequence[Period], of: int | None) -> list[FinishedSpan]:
    return [
        FinishedSpan(
            period.activity,
            period.began_ns,
            period.ended_ns,
            error="interrupted by an error" if period.failed else "",
            children=_children(periods, index),
        )
        for index, period in enumerate(periods)
        if period.within == of
    ]
