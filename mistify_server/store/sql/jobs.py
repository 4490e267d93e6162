"""Jobs in the database."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from sqlalchemy import delete, func, literal, select, update
from sqlalchemy.orm import Session
from typing_extensions import override

from mistify.config.data.dataset import DatasetConfig
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import GoalState, Job, JobEvent, JobState, PackageFile
from mistify.jobs.part import GoalSelection, JobPart
from mistify_server.identity.quotas import check_unfinished
from mistify_server.store.changes import Addition, Change, JobChanged, Submission
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.jobs import (
    ANY_JOB,
    JobChange,
    JobOrigin,
    JobSearch,
    JobStore,
    StoredPackage,
)
from mistify_server.store.plans import BatchInputs, BatchState
from mistify_server.store.references import Reference
from mistify_server.store.sql.changes import apply_change
from mistify_server.store.sql.columns import JSON_COLUMN, json_member
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.details import details_of, insert_points
from mistify_server.store.sql.reading import (
    UNFINISHED,
    batch_state,
    count_states,
    count_unfinished,
    job_of,
    job_row,
    part_of,
    parts_without_goals,
    stored_packages,
    submitted,
)
from mistify_server.store.sql.references import DigestReferences, artifact_references, rows_with_digests
from mistify_server.store.sql.removing import removable
from mistify_server.store.sql.rows import (
    GoalEvent,
    addition_row,
    digest,
    end_goals,
    file_row,
    insert_events,
    insert_goals,
    insert_job,
    last_sequence,
    read_event,
)
from mistify_server.store.sql.schema import (
    AdditionRow,
    BatchRow,
    BranchesRow,
    CheckpointRow,
    CurvePointRow,
    EdgeRow,
    EventRow,
    FileRow,
    GoalRow,
    GraphRow,
    JobRow,
    LayersRow,
)
from mistify_server.store.sql.searching import found_by

#: Tables with rows of a job, referring tables before the tables they refer to.
_OF_JOB = (
    EventRow,
    FileRow,
    BranchesRow,
    LayersRow,
    GraphRow,
    CurvePointRow,
    GoalRow,
    EdgeRow,
    CheckpointRow,
    BatchRow,
    AdditionRow,
)


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000


class SqlJobStore(JobStore):
    """Jobs in the database."""

    def __init__(self, database: Database, now_ms: Callable[[], int] = _unix_ms) -> None:
        self._database = database
        self._now_ms = now_ms
        self._references = DigestReferences()

    @override
    def create(self, submission: Submission, most_unfinished: int | None = None) -> Job:
        with self._database.write(certain=True) as session:
            known = submitted(session, submission.idempotency_key, submission.config_text)
            if known is not None:
                return job_of(session, known)
            submitter = submission.job.submitted_by
            check_unfinished(submitter, count_unfinished(session, submitter), most_unfinished)
            insert_job(session, submission)
            self._append_events(session, submission.job.id, [(None, submission.job.state)])
        return submission.job

    @override
    def find(self, idempotency_key: str, config_text: str) -> Job | None:
        with self._database.read() as session:
            known = submitted(session, idempotency_key, config_text)
            return None if known is None else job_of(session, known)

    @override
    def add_goals(self, job_id: str, addition: Addition, most_unfinished: int | None = None) -> None:
        with self._database.write(certain=True) as session:
            job = job_row(session, job_id)
            if job.removed_unix_ms is not None:
                raise MistifyError(
                    ErrorCode.CONFLICT, f"the job {job_id} is removed; restore it before you add goals"
                )
            if JobState(job.state).ended:
                check_unfinished(
                    job.submitted_by, count_unfinished(session, job.submitted_by), most_unfinished
                )
            count = session.scalar(select(func.count()).select_from(GoalRow).filter_by(job_id=job_id)) or 0
            session.add(addition_row(job_id, addition))
            insert_goals(session, job_id, addition.goals, count)
            for plan in addition.plans:
                of_plan = BatchRow.job_id == job_id, BatchRow.number == plan.number
                session.scalars(select(BatchRow.number).where(*of_plan)).one()  # does not read the old plan
                session.execute(update(BatchRow).where(*of_plan).values(plan=plan.model_dump(mode="json")))
            events: list[GoalEvent] = []
            if JobState(job.state).ended:
                job.traceparent = addition.traceparent
                events = apply_change(session, job_id, JobChanged(JobState.QUEUED))
            self._append_events(
                session, job_id, [*events, *((goal.id, goal.state) for goal in addition.goals)]
            )

    @override
    def added(self, job_id: str, idempotency_key: str, config_text: str) -> bool:
        with self._database.read() as session:
            job_row(session, job_id)
            key = {"job_id": job_id, "idempotency_key": idempotency_key}
            row = session.scalar(select(AdditionRow).filter_by(**key))
            if row is not None and row.config_sha256 != digest(config_text):
                raise MistifyError(
                    ErrorCode.CONFLICT,
                    f'the idempotency key "{idempotency_key}" was used to add other goals to the job '
                    f"{job_id}; use a new key",
                )
            return row is not None

    @override
    def job(self, job_id: str) -> Job:
        with self._database.read() as session:
            return job_of(session, job_row(session, job_id))

    @override
    def ended(self, job_id: str) -> bool:
        with self._database.read() as session:
            return JobState(job_row(session, job_id).state).ended

    @override
    def part(self, job_id: str, selection: GoalSelection) -> JobPart:
        with self._database.read() as session:
            return part_of(session, job_row(session, job_id), selection)

    @override
    def details(self, job_id: str, goal_id: str) -> GoalDetails:
        with self._database.read() as session:
            job_row(session, job_id)
            return details_of(session, job_id, goal_id)

    @override
    def inputs(self, job_id: str) -> list[BatchInputs]:
        plan = BatchRow.plan
        parts = select(
            json_member(plan, "model_name"),
            json_member(plan, "dataset"),
            json_member(plan, "recipe", "algorithm"),
            json_member(plan, "recipe", "settings"),
        )
        with self._database.read() as session:
            rows = session.execute(parts.where(BatchRow.job_id == job_id).order_by(BatchRow.number))
            return [
                BatchInputs(model, DatasetConfig.model_validate(dataset), algorithm, settings)
                for model, dataset, algorithm, settings in rows
            ]

    @override
    def config_text(self, job_id: str) -> str:
        with self._database.read() as session:
            return job_row(session, job_id).config_text

    @override
    def origin(self, job_id: str) -> JobOrigin:
        state = json_member(EventRow.body, "state")
        queued = EventRow.kind == "job", state == literal(JobState.QUEUED.value, JSON_COLUMN)
        last = select(func.max(EventRow.unix_ms)).where(EventRow.job_id == job_id, *queued)
        with self._database.read() as session:
            job = job_row(session, job_id)
            return JobOrigin(job.traceparent, session.scalar(last) or job.created_unix_ms)

    @override
    def goal_states(self, job_id: str) -> Counter[GoalState]:
        with self._database.read() as session:
            return count_states(session, GoalRow.job_id == job_id)

    @override
    def states(self) -> tuple[Counter[JobState], Counter[GoalState]]:
        with self._database.read() as session:
            jobs = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
            states = Counter({JobState(state): count for state, count in jobs})
            return states, count_states(session)

    @override
    def page(
        self,
        limit: int,
        most_goals: int,
        before: str | None = None,
        selection: GoalSelection | None = None,
        search: JobSearch = ANY_JOB,
    ) -> tuple[list[JobPart], bool]:
        with self._database.read() as session:
            newest_first = (
                select(JobRow).where(*found_by(search)).order_by(JobRow.number.desc()).limit(limit + 1)
            )
            if before is not None:
                newest_first = newest_first.where(JobRow.number < job_row(session, before).number)
            if selection is not None and selection.empty:
                jobs = session.scalars(newest_first).all()
                return parts_without_goals(session, jobs[:limit]), len(jobs) > limit
            goals = select(func.count()).where(GoalRow.job_id == JobRow.id).scalar_subquery()
            results = session.execute(newest_first.add_columns(goals)).all()
            shown = [count if selection is None else min(count, selection.page_size) for _, count in results]
            fitting = sum(total <= most_goals for total in accumulate(shown))
            rows = [row for row, _ in results[: min(limit, max(fitting, 1))]]
            return [part_of(session, row, selection) for row in rows], len(results) > len(rows)

    @override
    def change(self, job_id: str, change: JobChange) -> None:
        with self._database.write() as session:
            row = job_row(session, job_id)
            row.name = row.name if change.name is None else change.name
            row.tags = row.tags if change.tags is None else list(change.tags)
            row.priority = row.priority if change.priority is None else change.priority.value

    @override
    def hide(self, job_id: str, unix_ms: int) -> None:
        with self._database.write() as session:
            row = removable(session, job_id)
            row.removed_unix_ms = unix_ms if row.removed_unix_ms is None else row.removed_unix_ms

    @override
    def restore(self, job_id: str) -> None:
        with self._database.write() as session:
            job_row(session, job_id).removed_unix_ms = None

    @override
    def hidden(self, before_ms: int) -> list[str]:
        with self._database.read() as session:
            return list(session.scalars(select(JobRow.id).where(JobRow.removed_unix_ms < before_ms)))

    @override
    def unfinished(self) -> list[str]:
        with self._database.read() as session:
            unfinished = select(JobRow.id).where(JobRow.state.in_(UNFINISHED))
            return list(session.scalars(unfinished.order_by(JobRow.number)))

    @override
    def unfinished_of(self, submitter: str) -> int:
        with self._database.read() as session:
            return count_unfinished(session, submitter)

    @override
    def batches(self, job_id: str) -> list[BatchState]:
        with self._database.read() as session:
            job_row(session, job_id)
            rows = session.scalars(select(BatchRow).filter_by(job_id=job_id).order_by(BatchRow.number))
            return [batch_state(session, row) for row in rows]

    @override
    def record(
        self, job_id: str, changes: Iterable[Change], seconds: float, spent: Mapping[str, float]
    ) -> None:
        with self._database.write(certain=True) as session:
            job = job_row(session, job_id)
            job.seconds, job.spent = seconds, dict(spent)
            events = [event for change in changes for event in apply_change(session, job_id, change)]
            self._append_events(session, job_id, events)

    @override
    def end(self, job_id: str, goal_state: GoalState, job_state: JobState, reason: str = "") -> bool:
        with self._database.write() as session:
            if JobState(job_row(session, job_id).state).ended:
                return False
            end_goals(session, job_id, goal_state, reason, self._now_ms())
            self._append_events(session, job_id, apply_change(session, job_id, JobChanged(job_state, reason)))
            return True

    @override
    def set_paused(self, job_id: str, *, paused: bool) -> bool:
        with self._database.write() as session:
            state = JobState(job_row(session, job_id).state)
            if state.ended or paused is (state is JobState.PAUSED):
                return False
            change = JobChanged(JobState.PAUSED if paused else JobState.RUNNING)
            self._append_events(session, job_id, apply_change(session, job_id, change))
            return True

    @override
    def edges(self, subject: str, kind: str, limit: int) -> list[EdgeRecord]:
        with self._database.read() as session:
            own = EdgeRow.subject == subject
            query = select(EdgeRow).where(own | (EdgeRow.kind == kind))
            rows = session.scalars(query.order_by(own.desc(), EdgeRow.number.desc()).limit(limit))
            oldest_first = sorted(rows, key=lambda row: row.number)
            return [EdgeRecord.model_validate(row.record) for row in oldest_first]

    @override
    def events(self, job_id: str, after: int, limit: int) -> list[JobEvent]:
        with self._database.read() as session:
            job_row(session, job_id)
            later = select(EventRow).where(EventRow.job_id == job_id, EventRow.sequence > after)
            return list(map(_event, session.scalars(later.order_by(EventRow.sequence).limit(limit))))

    @override
    def latest_events(self, job_id: str, limit: int) -> list[JobEvent]:
        with self._database.read() as session:
            job_row(session, job_id)
            newest_first = select(EventRow).filter_by(job_id=job_id).order_by(EventRow.sequence.desc())
            return list(map(_event, session.scalars(newest_first.limit(limit))))[::-1]

    @override
    def remove(self, job_id: str, hidden_before_ms: int | None = None) -> None:
        with self._database.write() as session:
            job = removable(session, job_id)
            if (
                hidden_before_ms is not None
                and not (job.removed_unix_ms or hidden_before_ms) < hidden_before_ms
            ):
                raise MistifyError(ErrorCode.CONFLICT, f"the job {job_id} was restored")
            for row in _OF_JOB:
                session.execute(delete(row).filter_by(job_id=job_id))
            session.delete(job)

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
            return self._references.of(rows_with_digests(session))

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

    def _append_events(self, session: Session, job_id: str, events: Iterable[GoalEvent]) -> None:
        first, numbered = last_sequence(session, job_id) + 1, list(events)
        insert_events(session, job_id, numbered, first, self._now_ms())
        insert_points(session, job_id, numbered, first)


def _event(row: EventRow) -> JobEvent:
    return JobEvent(row.sequence, row.unix_ms, row.goal_id, read_event(row.kind, row.body))
