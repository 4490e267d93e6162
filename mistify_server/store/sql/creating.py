"""New jobs in the database, many in one transaction."""

from collections.abc import Callable, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from mistify.errors import MistifyError
from mistify.jobs.job import Job
from mistify_server.identity.quotas import check_unfinished
from mistify_server.store.changes import Submission
from mistify_server.store.jobs import NewJob
from mistify_server.store.sql.reading import check_same_config, job_of, known_keys
from mistify_server.store.sql.rows import digest, insert_jobs, tenant_key
from mistify_server.store.sql.schema import JobRow


def create_jobs(
    session: Session,
    new: Sequence[NewJob],
    tenant: str,
    unix_ms: int,
    unfinished_of: Callable[[str], int],
) -> list[Job | MistifyError]:
    """Insert the rows of new jobs of a tenant, and return their outcomes as `JobStore.create_all` does.

    Args:
        unix_ms: Time of their first events.
        unfinished_of: Returns the number of unfinished jobs of a submitter in the database.
    """
    creation = _Creation(session, new, tenant, unfinished_of)
    outcomes = [creation.outcome(each) for each in new]
    insert_jobs(session, creation.accepted, tenant, unix_ms)
    return outcomes


class _Creation:
    """Decides about jobs one after the other, each as if those before it were stored."""

    def __init__(
        self, session: Session, new: Sequence[NewJob], tenant: str, unfinished_of: Callable[[str], int]
    ) -> None:
        self.accepted: list[NewJob] = []
        self._session = session
        self._unfinished_of = unfinished_of
        self._by_key: dict[str, Submission] = {}
        keys = {key for each in new if (key := each.submission.idempotency_key)}
        known = known_keys(session.connection(), tenant, keys) if keys else ()
        self._stored = {key: _row_with_key(session, tenant, key) for key in known}

    def outcome(self, new: NewJob) -> Job | MistifyError:
        try:
            return self._job(new)
        except MistifyError as error:
            return error

    def _job(self, new: NewJob) -> Job:
        submission = new.submission
        key, text = submission.idempotency_key, submission.config_text
        if key is not None and (earlier := self._by_key.get(key)) is not None:
            check_same_config(key, earlier.job.id, digest(earlier.config_text), text)
            return earlier.job
        if key is not None and (row := self._stored.get(key)) is not None:
            check_same_config(key, row.id, row.config_sha256, text)
            return job_of(self._session, row)
        submitter = submission.job.submitted_by
        if new.most_unfinished is not None:
            before = sum(each.submission.job.submitted_by == submitter for each in self.accepted)
            check_unfinished(submitter, self._unfinished_of(submitter) + before, new.most_unfinished)
        self.accepted.append(new)
        if key is not None:
            self._by_key[key] = submission
        return submission.job


def _row_with_key(session: Session, tenant: str, key: str) -> JobRow:
    return session.scalars(select(JobRow).filter_by(idempotency_key=tenant_key(tenant, key))).one()
