"""Leases in the database."""

from uuid import uuid4

from typing_extensions import override

from mistify.jobs.job import JobState
from mistify_server.store.leases import JobLease, LeaseLostError, Leases
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.reading import job_row
from mistify_server.store.sql.schema import JobRow


class SqlLeases(Leases):
    """The leases of one server, in the rows of jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.server = uuid4().hex

    @override
    def take(self, job_id: str) -> JobLease | None:
        with self._database.write(certain=True) as session:
            job = job_row(session, job_id)
            if JobState(job.state).ended:
                return None
            job.owner = self.server
            return next_lease(job)


def next_lease(job: JobRow) -> JobLease:
    """Return a new lease of a job, which ends all earlier ones."""
    job.fence += 1
    return JobLease(job.id, job.fence)


def check_lease(job: JobRow, lease: JobLease | None) -> None:
    """Check in a transaction that writes that a lease is the last one of a job.

    Args:
        lease: The lease; None for a change that is not a result of the job's runner.

    Raises:
        LeaseLostError: The job was ended or taken by another server since.
    """
    if lease is not None and job.fence != lease.fence:
        raise LeaseLostError(job.id)
