"""The spans of jobs in traces, to which their steps belong.

A job may outlive the servers that run it. So its span has an id that follows from the job, and is recorded
when the job ends, by whichever server then runs it.
"""

import asyncio
import hashlib
import logging
import time
from dataclasses import dataclass, replace

from mistify.errors import MistifyError
from mistify.jobs.job import JobState
from mistify.jobs.part import GoalSelection
from mistify_server.store.changes import JobChanged
from mistify_server.store.jobs import JobOrigin, JobStore
from mistify_server.tracing.context import TraceContext
from mistify_server.tracing.traces import Attributes, FinishedSpan, Traces

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobTrace:
    """The trace of a job.

    Attributes:
        origin: The call that queued it, to whose trace it belongs.
        position: The position of the job's span.
    """

    job_id: str
    origin: JobOrigin
    position: TraceContext


class JobTraces:
    """Finds the traces of jobs, and records the spans of those that have ended."""

    def __init__(self, jobs: JobStore, traces: Traces) -> None:
        self._jobs = jobs
        self._traces = traces

    async def of(self, job_id: str) -> JobTrace | None:
        """Return the trace of a job that runs; None if it is not traced."""
        if not self._traces.enabled:
            return None
        try:
            origin = await asyncio.to_thread(self._jobs.origin, job_id)
        except MistifyError as error:  # the job itself waits for the store
            _log.warning("the job is not traced: %s", error)
            return None
        call = TraceContext.parse(origin.traceparent)
        if call is None:
            return None
        # A job that continues for added goals has another span.
        span_id = hashlib.sha256(f"{job_id} {origin.traceparent}".encode()).hexdigest()[:16]
        return JobTrace(job_id, origin, replace(call, span_id=span_id))

    def record(self, trace: JobTrace | None, end: JobChanged) -> None:
        """Record the span of a job that has just ended.

        The job is read at once, in milliseconds: the server may stop at any time.

        Args:
            end: Its last change.
        """
        if trace is None:
            return
        ended = time.time_ns()
        try:
            part = self._jobs.part(trace.job_id, GoalSelection())
        except MistifyError as unreadable:
            _log.warning("the end of the job is not in its trace: %s", unreadable)
            return
        attributes: Attributes = {
            "mistify.job.id": trace.job_id,
            "mistify.job.name": part.job.name,
            "mistify.job.state": end.state.value,
            "mistify.job.goals": part.goal_count,
            "mistify.job.goals_met": part.goals_met,
        }
        began = min(trace.origin.queued_unix_ms * 1_000_000, ended)
        error = (end.reason or "failed") if end.state is JobState.FAILED else ""
        span = FinishedSpan("job", began, ended, attributes, error, span_id=trace.position.span_id)
        self._traces.record(span, trace.origin.traceparent)
