"""The client of calls that change jobs as a whole: name, tags, priority, pause, cancel, remove."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Job, JobPriority
from mistify.v1 import porting_pb2 as pb
from mistify.v1.porting_pb2_grpc import PortingStub
from mistify.wire import porting
from mistify_client.rpc.base import ServiceClient
from mistify_client.rpc.connection import UnansweredError

#: Deadlines of the calls, in seconds.
JOB_SECONDS = 30.0
CANCEL_SECONDS = 20.0
REMOVE_SECONDS = 600.0

#: Maximum number of attempts to cancel a job.
CANCEL_ATTEMPTS = 3


class JobControl(ServiceClient):
    """A client of the porting service that changes jobs as a whole."""

    @cached_property
    def _stub(self) -> PortingStub:
        return PortingStub(self._connection.channel)  # type: ignore[no-untyped-call]  # generated code

    def rename(self, job_id: str, name: str) -> None:
        """Give a job another name for people; empty for none."""
        request = pb.ChangeJobRequest(job_id=job_id, name=name)
        self._connection.call(self._stub.ChangeJob, request, JOB_SECONDS)

    def tag(self, job_id: str, tags: Sequence[str]) -> None:
        """Replace the tags of a job."""
        request = pb.ChangeJobRequest(job_id=job_id, tags=pb.Tags(tags=tags))
        self._connection.call(self._stub.ChangeJob, request, JOB_SECONDS)

    def prioritize(self, job_id: str, priority: JobPriority) -> None:
        """Give a job another priority."""
        request = pb.ChangeJobRequest(job_id=job_id, priority=porting.priority_to_proto(priority))
        self._connection.call(self._stub.ChangeJob, request, JOB_SECONDS)

    def cancel(self, job_id: str) -> Job:
        """Stop a job; goals that are met keep their packages. A job that has ended does not change.

        A call without a timely response is repeated: whether or not the first one has cancelled the job, the
        response contains the job's final state.

        Returns:
            The job, without its goals.

        Raises:
            MistifyError: UNAVAILABLE, no call got a response: the job may or may not have been cancelled.
        """
        request = pb.CancelJobRequest(job_id=job_id, goals=pb.GoalSelection())
        for _ in range(CANCEL_ATTEMPTS):
            with suppress(UnansweredError):
                message = self._connection.call(self._stub.CancelJob, request, CANCEL_SECONDS)
                return porting.job_from_proto(message)
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"the server at {self._connection.address} did not respond in time, so the job "
            f"{job_id} may or may not have been cancelled: check with `mistify jobs`, or cancel it again",
        )

    def pause(self, job_id: str) -> Job:
        """Let a job start no further steps; those in progress end first, and nothing is lost.

        A job that has ended does not change.

        Returns:
            The job, without its goals.
        """
        request = pb.PauseJobRequest(job_id=job_id, goals=pb.GoalSelection())
        return porting.job_from_proto(self._connection.call(self._stub.PauseJob, request, JOB_SECONDS))

    def resume(self, job_id: str) -> Job:
        """Let a paused job continue; other jobs do not change. Return the job, without its goals."""
        request = pb.ResumeJobRequest(job_id=job_id, goals=pb.GoalSelection())
        return porting.job_from_proto(self._connection.call(self._stub.ResumeJob, request, JOB_SECONDS))

    def remove(self, job_id: str) -> int:
        """Remove a job that has ended from the lists, and return until when `restore` can undo it.

        The server removes its packages after that.

        Returns:
            The time in milliseconds since 1970.

        Raises:
            MistifyError: NOT_FOUND, there is no such job; CONFLICT, it has not ended, or a group is tuning
                its packages.
        """
        request = pb.RemoveJobRequest(job_id=job_id)
        answer: pb.RemoveJobResponse = self._connection.call(self._stub.RemoveJob, request, JOB_SECONDS)
        return answer.undo_until_unix_ms

    def restore(self, job_id: str) -> None:
        """Restore a removed job; no effect on other jobs.

        Raises:
            MistifyError: NOT_FOUND, there is no such job, or it can no longer be restored.
        """
        request = pb.RestoreJobRequest(job_id=job_id)
        self._connection.call(self._stub.RestoreJob, request, JOB_SECONDS)

    def remove_now(self, job_id: str) -> int:
        """Remove a job that has ended, with its packages, and return the number of freed bytes.

        Raises:
            MistifyError: NOT_FOUND, there is no such job; CONFLICT, it has not ended, or a group is tuning
                its packages.
        """
        request = pb.RemoveJobRequest(job_id=job_id, now=True)
        answer: pb.RemoveJobResponse = self._connection.call(self._stub.RemoveJob, request, REMOVE_SECONDS)
        return answer.freed_bytes
