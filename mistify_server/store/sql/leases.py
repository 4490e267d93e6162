"""Leases in the database."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Final

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session
from typing_extensions import override

from mistify.errors import MistifyError
from mistify.jobs.job import JobPriority, JobState
from mistify_server.store.leases import (
    JobLease,
    JobSituation,
    LeaseLostError,
    Leases,
    UnknownGoalsError,
)
from mistify_server.store.sql.columns import DatabaseClock, is_one_of
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.reading import UNFINISHED, job_row
from mistify_server.store.sql.rows import UNFINISHED_GOALS
from mistify_server.store.sql.schema import GoalRow, JobRow, MetaRow, ServerRow
from mistify_server.store.sql.versions import of_this_version, state_of

#: Seconds after which a server that was killed is forgotten: longer than any task.
_REMEMBERED: Final = 2 * 86_400.0

#: Key of the row in the table `meta` with the address of the last main server.
_MAIN_ADDRESS: Final = "main_address"


class SqlLeases(Leases):
    """The leases of one server: the owners and fences of jobs, and the rows of servers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.server = database.user

    @override
    def start_alone(self) -> None:
        with self._database.write() as session:
            session.execute(delete(ServerRow))

    @override
    def record_main(self, address: str) -> None:
        with self._database.write() as session:
            session.merge(MetaRow(key=_MAIN_ADDRESS, value=address))

    @override
    def main_address(self) -> str | None:
        with self._database.read() as session:
            row = session.get(MetaRow, _MAIN_ADDRESS)
            return None if row is None else row.value

    @override
    def announced(self, on_change: Callable[[str], None]) -> AbstractContextManager[None]:
        return self._database.announced(on_change)

    @override
    def renew(self, seconds: float, busy_seconds: float = 0.0) -> bool:
        with self._database.write() as session:
            now = _now(session)
            session.execute(delete(ServerRow).where(ServerRow.expires < now - _REMEMBERED))
            own = session.get(ServerRow, self.server)
            if own is None:
                own = ServerRow(id=self.server, expires=0.0)
                session.add(own)
            if own.expires < now:
                own.since = now
            own.renewed, own.expires, own.busy_seconds = now, now + seconds, busy_seconds
            others = ServerRow.id != self.server, ServerRow.expires > now
            return session.scalar(select(ServerRow.id).where(*others).limit(1)) is not None

    @override
    def leave(self) -> None:
        with self._database.write() as session:
            session.execute(delete(ServerRow).where(ServerRow.id == self.server))
            of_own = JobRow.owner == self.server, JobRow.state.in_(UNFINISHED)
            session.execute(update(JobRow).where(*of_own).values(owner=None))
            self._database.announce(session)

    @override
    def take(self, job_id: str) -> JobLease | None:
        with self._database.write(certain=True) as session:
            job = job_row(session, job_id)
            if state_of(job).ended or not self._is_free(session, job.owner):
                return None
            job.owner = self.server
            return next_lease(job)

    @override
    def take_unbegun(self, job_id: str) -> bool:
        with self._database.write(certain=True) as session:
            job = job_row(session, job_id)
            if state_of(job) is not JobState.QUEUED:
                return False
            job.owner = self.server
            next_lease(job)
            self._database.announce(session, job_id)
            return True

    @override
    def give_back(self, job_id: str) -> None:
        with self._database.write() as session:
            own = JobRow.id == job_id, JobRow.owner == self.server
            session.execute(update(JobRow).where(*own).values(owner=None))
            self._database.announce(session)

    @override
    def situations(self, own: Collection[str], *, unfinished: bool = True) -> list[JobSituation]:
        with self._database.read() as session:
            wanted = or_(is_one_of(JobRow.id, own), JobRow.state.in_(UNFINISHED if unfinished else ()))
            columns = JobRow.id, JobRow.fence, JobRow.state, JobRow.owner, JobRow.priority
            jobs = session.execute(select(*columns).where(wanted).order_by(JobRow.number)).all()
            counted = select(GoalRow.job_id, func.count()).where(is_one_of(GoalRow.job_id, own))
            counts = session.execute(counted.group_by(GoalRow.job_id))
            goals = {job_id: int(count) for job_id, count in counts}
            others = ServerRow.id != self.server, ServerRow.expires > _now(session)
            of_others = {*session.scalars(select(ServerRow.id).where(*others))}
            return [
                _situation(job_id, fence, state, priority, goals.get(job_id, 0), owned=owner in of_others)
                for job_id, fence, state, owner, priority in jobs
            ]

    @override
    def oldest_step(self) -> float:
        with self._database.read() as session:
            age = _now(session) - ServerRow.renewed + ServerRow.busy_seconds
            return session.scalar(select(func.max(age)).where(ServerRow.id != self.server)) or 0.0

    def _is_free(self, session: Session, owner: str | None) -> bool:
        """Check whether this server may have the jobs of another one."""
        if owner in (None, self.server):
            return True
        other, own = session.get(ServerRow, owner), session.get(ServerRow, self.server)
        if other is None:
            return True
        now = _now(session)
        in_time = own is not None and own.expires > now >= own.since + (own.expires - own.renewed)
        return in_time and other.expires <= now


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


def check_complete(session: Session, job: JobRow, lease: JobLease | None) -> None:
    """Check in a transaction that writes that a job, if its runner has ended it, has no unfinished goals.

    Raises:
        UnknownGoalsError: It has some, which another server has added.
    """
    if lease is None or not state_of(job).ended:
        return
    unfinished = GoalRow.job_id == job.id, GoalRow.state.in_(UNFINISHED_GOALS)
    if session.scalar(select(GoalRow.id).where(*unfinished).limit(1)) is not None:
        raise UnknownGoalsError(job.id)


def _situation(
    job_id: str, fence: int, state: str, priority: str, goals: int, *, owned: bool
) -> JobSituation:
    """Return the situation of a job from its columns.

    Args:
        owned: Whether another server has it.
    """
    unreadable = JobSituation(
        job_id, fence, free=False, paused=False, priority=JobPriority.NORMAL, goals=goals
    )
    try:
        with of_this_version(job_id):
            read, level = JobState(state), JobPriority(priority)
    except MistifyError as error:
        return unreadable._replace(error=error)
    return unreadable._replace(
        free=not owned and not read.ended,
        paused=read is JobState.PAUSED,
        priority=level,
        begun=read is not JobState.QUEUED,
    )


def _now(session: Session) -> float:
    return session.scalar(select(DatabaseClock())) or 0.0
