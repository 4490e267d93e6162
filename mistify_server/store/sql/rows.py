"""Conversion between rows and domain objects: jobs, goals, checkpoints and events."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter
from sqlalchemy import (
    bindparam,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.orm import Session

from mistify.config.data.metric import OutputScore
from mistify.jobs.job import (
    Goal,
    GoalState,
    JobEvent,
    JobState,
    PackageFile,
    ProgressUpdate,
)
from mistify_server.store.changes import Addition, Submission
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.jobs import NewJob
from mistify_server.store.leases import FIRST_FENCE
from mistify_server.store.sql.schema import (
    AdditionRow,
    BatchRow,
    CheckpointRow,
    EdgeRow,
    EventRow,
    FileRow,
    GoalRow,
    JobRow,
    Table,
)
from mistify_server.store.sql.versions import of_this_version
from mistify_server.tasks.results import AdaptResult

Event: TypeAlias = JobState | GoalState | ProgressUpdate

#: The id of an event's goal (None for the job and its source), and the event.
GoalEvent: TypeAlias = tuple[str | None, Event]

#: States of unfinished goals.
UNFINISHED_GOALS: Final = tuple(state.value for state in GoalState if not state.ended)

_GOAL: TypeAdapter[Goal] = TypeAdapter(Goal)
_SCORES: TypeAdapter[tuple[OutputScore, ...]] = TypeAdapter(tuple[OutputScore, ...])
_PROGRESS: TypeAdapter[ProgressUpdate] = TypeAdapter(ProgressUpdate)


def digest(text: str) -> str:
    """Return the SHA-256 (hex) of a config text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def insert_jobs(session: Session, new: Collection[NewJob], tenant: str, unix_ms: int) -> None:
    """Insert the rows of new jobs of a tenant, each with its first event and lease."""
    submissions = [each.submission for each in new]
    jobs = [_job_columns(each.submission, tenant, each.owner) for each in new]
    batches = [
        {
            "job_id": submission.job.id,
            "number": plan.number,
            "plan": plan,
            "root": None,
            "reference": None,
        }
        for submission in submissions
        for plan in submission.plans
    ]
    goals = [
        row for submission in submissions for row in _goal_rows(submission.job.id, submission.job.goals, 0)
    ]
    events = [
        row
        for submission in submissions
        for row in _event_rows(submission.job.id, [(None, submission.job.state)], 1, unix_ms)
    ]
    for table, rows in ((JobRow, jobs), (BatchRow, batches), (GoalRow, goals), (EventRow, events)):
        _insert(session, table, rows)


def _insert(session: Session, table: type[Table], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows with equal columns without the ORM, which takes as long as everything else together."""
    if rows:
        columns: Any = table.__table__
        session.execute(insert(columns), rows)


def _job_columns(submission: Submission, tenant: str, owner: str | None) -> dict[str, Any]:
    job = submission.job
    return {
        "id": job.id,
        "state": job.state.value,
        "idempotency_key": tenant_key(tenant, submission.idempotency_key),
        "config_text": submission.config_text,
        "config_sha256": digest(submission.config_text),
        "created_unix_ms": job.created_unix_ms,
        "submitted_by": job.submitted_by,
        "name": job.name,
        "tags": list(job.tags),
        "priority": job.priority.value,
        "removed_unix_ms": None,
        "traceparent": submission.traceparent,
        "reason": job.reason,
        "seconds": job.seconds,
        "spent": dict(job.spent),
        "tenant": tenant,
        "owner": owner,
        "fence": 0 if owner is None else FIRST_FENCE,
    }


def tenant_key(tenant: str, key: str | None) -> str | None:
    """Return a tenant's idempotency key as it is stored; None for no key."""
    return None if key is None else f"{tenant}/{key}"


def insert_goals(session: Session, job_id: str, goals: Iterable[Goal], first: int) -> None:
    """Insert the rows of new goals, starting at the position `first` in the job."""
    _insert(session, GoalRow, _goal_rows(job_id, goals, first))


def _goal_rows(job_id: str, goals: Iterable[Goal], first: int) -> list[dict[str, Any]]:
    return [
        {"job_id": job_id, "position": position, **_columns(goal)}
        for position, goal in enumerate(goals, first)
    ]


def _columns(goal: Goal) -> dict[str, Any]:
    """Return the columns of a goal's row; its files have separate rows."""
    columns: dict[str, Any] = _GOAL.dump_python(goal, mode="json", by_alias=True, exclude={"files"})
    return columns


def insert_addition(session: Session, job_id: str, addition: Addition, first: int) -> None:
    """Insert the rows of goals added to a job, starting at the position `first`, and change its plans."""
    session.add(
        AdditionRow(
            job_id=job_id,
            idempotency_key=addition.idempotency_key,
            config_text=addition.config_text,
            config_sha256=digest(addition.config_text),
        )
    )
    insert_goals(session, job_id, addition.goals, first)
    for plan in addition.plans:
        of_plan = BatchRow.job_id == job_id, BatchRow.number == plan.number
        session.scalars(select(BatchRow.number).where(*of_plan)).one()  # does not read the old plan
        session.execute(update(BatchRow).where(*of_plan).values(plan=plan))


def change_goal(session: Session, row: GoalRow, goal: Goal) -> None:
    """Update a goal's rows."""
    for column, value in _columns(goal).items():
        setattr(row, column, value)
    for file in goal.files:
        session.merge(file_row(row.job_id, row.id, file))


def file_row(job_id: str, goal_id: str, file: PackageFile) -> FileRow:
    """Return the row for a file of a goal's package."""
    return FileRow(job_id=job_id, goal_id=goal_id, name=file.name, size=file.size, sha256=file.sha256)


def fail_goals(session: Session, job_id: str, goal_ids: Iterable[str], reason: str) -> None:
    """Mark goals as failed."""
    goals: Any = GoalRow.__table__
    change = (
        update(goals)
        .where(goals.c.job_id == job_id, goals.c.id == bindparam("goal"))
        .values(state=GoalState.FAILED.value, reason=reason)
    )
    goal_rows = [{"goal": goal_id} for goal_id in goal_ids]
    if goal_rows:
        session.connection().execute(change, goal_rows)


def last_sequence(session: Session, job_id: str) -> int:
    """Return the number of a job's last event; 0 if it has none."""
    return session.scalar(select(func.max(EventRow.sequence)).where(EventRow.job_id == job_id)) or 0


def end_goals(session: Session, job_id: str, state: GoalState, reason: str, unix_ms: int) -> None:
    """Finish all unfinished goals, each with an event."""
    of_goal = GoalRow.job_id == job_id, GoalRow.state.in_(UNFINISHED_GOALS)
    number = func.row_number().over(order_by=GoalRow.position) + last_sequence(session, job_id)
    kind, body = _event_body(state)
    event = select(
        GoalRow.job_id, number, literal(unix_ms), GoalRow.id, literal(kind), literal(body, EventRow.body.type)
    ).where(*of_goal)
    columns = ["job_id", "sequence", "unix_ms", "goal_id", "kind", "body"]
    session.execute(insert(EventRow).from_select(columns, event))
    session.execute(update(GoalRow).where(*of_goal).values(state=state.value, reason=reason))


def checkpoint_row(job_id: str, batch: int, node: int, result: AdaptResult) -> CheckpointRow:
    """Return the row of a node's checkpoint."""
    return CheckpointRow(
        job_id=job_id,
        batch=batch,
        node=node,
        artifact=result.checkpoint,
        costs=result.costs,
        accuracy=result.accuracy,
        output_scores=_SCORES.dump_python(result.output_scores, mode="json"),
        met=result.met,
        reason=result.reason,
        steps=result.steps,
        spent=result.spent,
    )


def edge_row(job_id: str, batch: int, node: int, record: EdgeRecord) -> EdgeRow:
    """Return the row of an adapted edge."""
    return EdgeRow(
        job_id=job_id,
        batch=batch,
        node=node,
        subject=record.case.subject,
        kind=record.case.kind,
        record=record.model_dump(mode="json"),
    )


def adapt_result(row: CheckpointRow) -> AdaptResult:
    """Return a node's checkpoint from its row."""
    return AdaptResult(
        checkpoint=row.artifact,
        costs=row.costs,
        accuracy=row.accuracy,
        output_scores=_SCORES.validate_python(row.output_scores),
        met=row.met,
        reason=row.reason,
        steps=row.steps,
        spent=row.spent,
    )


def insert_events(
    session: Session, job_id: str, events: Iterable[GoalEvent], first: int, unix_ms: int
) -> None:
    """Insert the rows of simultaneous events, numbered from `first`."""
    _insert(session, EventRow, _event_rows(job_id, events, first, unix_ms))


def _event_rows(job_id: str, events: Iterable[GoalEvent], first: int, unix_ms: int) -> list[dict[str, Any]]:
    return [
        {
            "job_id": job_id,
            "sequence": sequence,
            "unix_ms": unix_ms,
            "goal_id": goal_id,
            "kind": kind,
            "body": body,
        }
        for sequence, (goal_id, event) in enumerate(events, first)
        for kind, body in [_event_body(event)]
    ]


def _event_body(event: Event) -> tuple[str, dict[str, object]]:
    match event:
        case JobState():
            return "job", {"state": event.value}
        case GoalState():
            return "goal", {"state": event.value}
        case ProgressUpdate():
            return "progress", _PROGRESS.dump_python(event, mode="json")


def job_event(row: EventRow) -> JobEvent:
    """Return an event from its row.

    Raises:
        MistifyError: STORE_VERSION, this version does not know it.
    """
    with of_this_version(row.job_id):
        return JobEvent(row.sequence, row.unix_ms, row.goal_id, read_event(row.kind, row.body))


def read_event(kind: str, body: dict[str, object]) -> Event:
    """Return an event from its row's `kind` and `body`."""
    match kind:
        case "job":
            return JobState(body["state"])
        case "goal":
            return GoalState(body["state"])
        case _:
            return _PROGRESS.validate_python(body)
