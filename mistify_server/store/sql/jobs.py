"""Jobs in the database."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import GoalState, Job, JobEvent, JobState, PackageFile
from mistify.jobs.part import GoalSelection, JobPage, JobPart
from mistify_server.identity.callers import DEFAULT_TENANT, CallerId
from mistify_server.identity.quotas import check_unfinished
from mistify_server.store.changes import Addition, Change, JobChanged
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.jobs import (
    ANY_JOB,
    JobChange,
    JobOrigin,
    JobSearch,
    JobStore,
    NewJob,
    StoredPackage,
)
from mistify_server.store.leases import JobLease
from mistify_server.store.plans import BatchInputs, BatchState
from mistify_server.store.references import Reference
from mistify_server.store.sql.changes import apply_change
from mistify_server.store.sql.creating import create_jobs
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.details import details_of, insert_points
from mistify_server.store.sql.leases import check_complete, check_lease, next_lease
from mistify_server.store.sql.pages import page_with_goals, page_without_goals
from mistify_server.store.sql.reading import (
    MAY_GO_ON,
    batch_states,
    count_states,
    count_unfinished,
    inputs_of,
    job_of,
    job_row,
    known_keys,
    latest_edges,
    of_tenant,
    origin_of,
    part_of,
    stored_packages,
    submitted,
    was_added,
)
from mistify_server.store.sql.references import DigestReferences, artifact_references, rows_with_digests
from mistify_server.store.sql.removing import check_removable, remove_rows
from mistify_server.store.sql.rows import (
    GoalEvent,
    end_goals,
    file_row,
    insert_addition,
    insert_events,
    job_event,
    last_sequence,
)
from mistify_server.store.sql.schema import EventRow, GoalRow, JobRow
from mistify_server.store.sql.searching import search_conditions
from mistify_server.store.sql.versions import of_this_version, state_of


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000


class SqlJobStore(JobStore):
    """The jobs of a tenant in the database, or all jobs.

    Args:
        tenant: The tenant, to which new jobs will belong; None for all jobs, and new ones of `default`.
    """

    def __init__(
        self, database: Database, now_ms: Callable[[], int] = _unix_ms, *, tenant: str | None = None
    ) -> None:
        self._database = database
        self._now_ms = now_ms
        self._tenant = tenant
        self._own = DEFAULT_TENANT if tenant is None else tenant
        self._references = DigestReferences()

    @override
    def create_all(self, new: Sequence[NewJob]) -> list[Job | MistifyError]:
        with self._database.write(certain=True) as session:
            unfinished = partial(count_unfinished, session, self._tenant)
            outcomes = create_jobs(session, new, self._own, self._now_ms(), unfinished)
            if offered := [each.submission.job.id for each in new if each.offered]:
                self._database.announce(session, offered[0])  # others look at all jobs when they hear of one
            return outcomes

    @override
    def known_keys(self, idempotency_keys: Collection[str]) -> frozenset[str]:
        with self._database.read_rows() as connection:
            return known_keys(connection, self._own, idempotency_keys)

    @override
    def find(self, idempotency_key: str, config_text: str) -> Job | None:
        with self._database.read() as session:
            known = submitted(session, self._own, idempotency_key, config_text)
            return None if known is None else job_of(session, known)

    @override
    def add_goals(
        self,
        job_id: str,
        addition: Addition,
        most_unfinished: int | None = None,
        planned_for: tuple[int, int] | None = None,
    ) -> bool:
        with self._database.write(certain=True) as session:
            job = self._job(session, job_id)
            if job.removed_unix_ms is not None:
                raise MistifyError(
                    ErrorCode.CONFLICT, f"the job {job_id} is removed; restore it before you add goals"
                )
            if state_of(job).ended:
                unfinished = count_unfinished(session, self._tenant, job.submitted_by)
                check_unfinished(job.submitted_by, unfinished, most_unfinished)
            states = count_states(session, GoalRow.job_id == job_id)
            lost = states[GoalState.FAILED.value] + states[GoalState.CANCELLED.value]
            if planned_for not in (None, (states.total(), lost)):
                return False
            insert_addition(session, job_id, addition, states.total())
            events: list[GoalEvent] = []
            if state_of(job).ended:
                job.traceparent, job.owner = addition.traceparent, None
                events = apply_change(session, job_id, JobChanged(JobState.QUEUED))
            self._append_events(
                session, job_id, [*events, *((goal.id, goal.state) for goal in addition.goals)]
            )
            return True

    @override
    def added(self, job_id: str, idempotency_key: str, config_text: str) -> bool:
        with self._database.read() as session:
            self._job(session, job_id)
            return was_added(session, job_id, idempotency_key, config_text)

    @override
    def job(self, job_id: str) -> Job:
        with self._database.read() as session:
            return job_of(session, self._job(session, job_id))

    @override
    def ended(self, job_id: str) -> bool:
        with self._database.read() as session:
            return state_of(self._job(session, job_id)).ended

    @override
    def part(self, job_id: str, selection: GoalSelection) -> JobPart:
        with self._database.read() as session:
            return part_of(session, self._job(session, job_id), selection)

    @override
    def details(self, job_id: str, goal_id: str) -> GoalDetails:
        with self._database.read() as session:
            self._job(session, job_id)
            return details_of(session, job_id, goal_id)

    @override
    def inputs(self, job_id: str) -> list[BatchInputs]:
        with self._database.read() as session:
            self._job(session, job_id)
            return inputs_of(session, job_id)

    @override
    def config_text(self, job_id: str) -> str:
        with self._database.read() as session:
            return self._job(session, job_id).config_text

    @override
    def origin(self, job_id: str) -> JobOrigin:
        with self._database.read() as session:
            return origin_of(session, self._job(session, job_id))

    @override
    def submitter(self, job_id: str) -> CallerId:
        with self._database.read() as session:
            job = self._job(session, job_id)
            return CallerId(job.tenant, job.submitted_by)

    @override
    def goal_states(self, job_id: str) -> Counter[GoalState]:
        with self._database.read() as session:
            own = select(JobRow.id).where(JobRow.id == job_id, of_tenant(self._tenant))
            counts = count_states(session, GoalRow.job_id.in_(own))
            with of_this_version(job_id):
                return Counter({GoalState(state): count for state, count in counts.items()})

    @override
    def states(self) -> tuple[Counter[JobState], Counter[GoalState]]:
        with self._database.read() as session:
            rows = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
            jobs, goals = Counter({state: int(count) for state, count in rows}), count_states(session)
            return (
                Counter({state: jobs[state.value] for state in JobState}),
                Counter({state: goals[state.value] for state in GoalState}),
            )

    @override
    def page(
        self,
        limit: int,
        most_goals: int,
        before: str | None = None,
        selection: GoalSelection | None = None,
        search: JobSearch = ANY_JOB,
    ) -> JobPage:
        with self._database.read() as session:
            newest_first = (
                select(JobRow)
                .where(of_tenant(self._tenant), *search_conditions(search))
                .order_by(JobRow.number.desc())
            )
            if before is not None:
                newest_first = newest_first.where(JobRow.number < self._job(session, before).number)
            if selection is not None and selection.empty:
                return page_without_goals(session, newest_first, limit)
            return page_with_goals(session, newest_first, limit, most_goals, selection)

    @override
    def change(self, job_id: str, change: JobChange) -> None:
        with self._database.write() as session:
            row = self._job(session, job_id)
            row.name = row.name if change.name is None else change.name
            row.tags = row.tags if change.tags is None else list(change.tags)
            row.priority = row.priority if change.priority is None else change.priority.value
            self._database.announce(session, job_id)

    @override
    def hide(self, job_id: str, unix_ms: int) -> int:
        with self._database.write() as session:
            row = self._job(session, job_id)
            check_removable(session, row)
            removed = unix_ms if row.removed_unix_ms is None else row.removed_unix_ms
            row.removed_unix_ms = removed
            return removed

    @override
    def restore(self, job_id: str) -> None:
        with self._database.write() as session:
            self._job(session, job_id).removed_unix_ms = None

    @override
    def hidden(self, before_ms: int) -> list[str]:
        with self._database.read() as session:
            return list(session.scalars(select(JobRow.id).where(JobRow.removed_unix_ms < before_ms)))

    @override
    def all_ended(self) -> bool:
        with self._database.read() as session:
            return not session.scalar(select(exists().where(MAY_GO_ON)))

    @override
    def unfinished_of(self, submitter: str) -> int:
        with self._database.read() as session:
            return count_unfinished(session, self._tenant, submitter)

    @override
    def batches(self, job_id: str) -> list[BatchState]:
        with self._database.read() as session:
            self._job(session, job_id)
            return batch_states(session, job_id)

    @override
    def with_batches(self, job_id: str) -> tuple[Job, list[BatchState]]:
        with self._database.read() as session:
            return job_of(session, self._job(session, job_id)), batch_states(session, job_id)

    @override
    def record(
        self,
        job_id: str,
        changes: Iterable[Change],
        seconds: float,
        spent: Mapping[str, float],
        lease: JobLease | None = None,
    ) -> None:
        with self._database.write(certain=True) as session:
            job = self._job(session, job_id)
            check_lease(job, lease)
            job.seconds, job.spent = seconds, dict(spent)
            if job.state == JobState.PAUSED.value:  # by another server, of which the runner will learn
                changes = [change for change in changes if change != JobChanged(JobState.RUNNING)]
            events = [event for change in changes for event in apply_change(session, job_id, change)]
            self._append_events(session, job_id, events)
            check_complete(session, job, lease)

    @override
    def end(self, job_id: str, end: JobChanged, lease: JobLease | None = None) -> bool:
        with self._database.write() as session:
            job = self._job(session, job_id)
            check_lease(job, lease)
            if state_of(job).ended:
                return False
            next_lease(job)
            end_goals(session, job_id, GoalState(end.state.value), end.reason, self._now_ms())
            self._append_events(session, job_id, apply_change(session, job_id, end))
            return True

    @override
    def set_paused(self, job_id: str, *, paused: bool) -> bool:
        with self._database.write() as session:
            state = state_of(self._job(session, job_id))
            if state.ended or paused is (state is JobState.PAUSED):
                return False
            change = JobChanged(JobState.PAUSED if paused else JobState.RUNNING)
            self._append_events(session, job_id, apply_change(session, job_id, change))
            return True

    @override
    def edges(self, subject: str, kind: str, limit: int) -> list[EdgeRecord]:
        with self._database.read_rows() as connection:
            return latest_edges(connection, self._tenant, subject, kind, limit)

    @override
    def events(self, job_id: str, after: int, limit: int) -> list[JobEvent]:
        with self._database.read() as session:
            self._job(session, job_id)
            later = select(EventRow).where(EventRow.job_id == job_id, EventRow.sequence > after)
            return list(map(job_event, session.scalars(later.order_by(EventRow.sequence).limit(limit))))

    @override
    def latest_events(self, job_id: str, limit: int) -> list[JobEvent]:
        with self._database.read() as session:
            self._job(session, job_id)
            newest_first = select(EventRow).filter_by(job_id=job_id).order_by(EventRow.sequence.desc())
            return list(map(job_event, session.scalars(newest_first.limit(limit))))[::-1]

    @override
    def remove(self, job_id: str, hidden_before_ms: int | None = None) -> None:
        with self._database.write() as session:
            job = self._job(session, job_id)
            check_removable(session, job)
            before = hidden_before_ms
            if before is not None and not (job.removed_unix_ms or before) < before:
                raise MistifyError(ErrorCode.CONFLICT, f"the job {job_id} was restored")
            remove_rows(session, job)

    @override
    def packages(self) -> list[StoredPackage]:
        with self._database.read() as session:
            return list(stored_packages(session))

    @override
    def set_files(self, files: Mapping[tuple[str, str], PackageFile]) -> None:
        with self._database.write() as session:
            for (job_id, goal_id), file in files.items():
                session.merge(file_row(job_id, goal_id, file))

    @override
    def referenced_digests(self) -> set[str]:
        with self._database.read() as session:
            return self._references.of(rows_with_digests(session, self._tenant))

    @override
    def references(self) -> list[Reference]:
        with self._database.read() as session:
            return list(artifact_references(session))

    @override
    def faults(self) -> list[str]:
        return self._database.faults()

    @override
    def size(self) -> int:
        return self._database.size()

    @override
    def shrink(self) -> int:
        return self._database.shrink()

    def _job(self, session: Session, job_id: str) -> JobRow:
        return job_row(session, job_id, self._tenant)

    def _append_events(self, session: Session, job_id: str, events: Iterable[GoalEvent]) -> None:
        first, numbered = last_sequence(session, job_id) + 1, list(events)
        insert_events(session, job_id, numbered, first, self._now_ms())
        insert_points(session, job_id, numbered, first)
        self._database.announce(session, job_id)
