"""Conversion between rows and the domain: jobs, goals, checkpoints and events."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session

from mistify.costs.axes import plugged_in_formats
from mistify.costs.budget import Costs
from mistify.jobs.job import (
    Goal,
    GoalState,
    Job,
    JobState,
    PackageFile,
    ProgressUpdate,
    Source,
)
from mistify_server.store.changes import Addition, Submission
from mistify_server.store.edges import EdgeRecord
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
from mistify_server.tasks.results import AdaptResult, ReferenceResult, SourceResult

Event: TypeAlias = JobState | GoalState | ProgressUpdate

#: The id of the goal that an event is about, None for the job and for its source, and the event.
GoalEvent: TypeAlias = tuple[str | None, Event]

_COSTS: TypeAdapter[dict[str, float]] = TypeAdapter(dict[str, float])
_GOAL: TypeAdapter[Goal] = TypeAdapter(Goal)
_PROGRESS: TypeAdapter[ProgressUpdate] = TypeAdapter(ProgressUpdate)


def digest(text: str) -> str:
    """Return the SHA-256 (hex) of a config text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def new_rows(submission: Submission) -> Iterable[Sequence[Table]]:
    """Yield the rows of a new job, those that others refer to first."""
    job = submission.job
    yield [
        JobRow(
            id=job.id,
            state=job.state.value,
            idempotency_key=submission.idempotency_key,
            config_text=submission.config_text,
            config_sha256=digest(submission.config_text),
            created_unix_ms=job.created_unix_ms,
            reason=job.reason,
            seconds=job.seconds,
            spent=dict(job.spent),
        )
    ]
    yield [
        BatchRow(
            job_id=job.id, number=plan.number, plan=plan.model_dump(mode="json"), root=None, reference=None
        )
        for plan in submission.plans
    ]
    yield goal_rows(job.id, job.goals, 0)


def goal_rows(job_id: str, goals: Iterable[Goal], first: int) -> list[GoalRow]:
    """Return the rows of new goals, the first of which gets the position `first` in the job."""
    return [
        GoalRow(job_id=job_id, position=position, **_columns(goal))
        for position, goal in enumerate(goals, first)
    ]


def _columns(goal: Goal) -> dict[str, Any]:
    """Return the columns of a goal's row; its files have rows of their own."""
    columns: dict[str, Any] = _GOAL.dump_python(goal, mode="json", by_alias=True, exclude={"files"})
    return columns


def addition_row(job_id: str, addition: Addition) -> AdditionRow:
    """Return the row of goals that are added to a job."""
    return AdditionRow(
        job_id=job_id,
        idempotency_key=addition.idempotency_key,
        config_text=addition.config_text,
        config_sha256=digest(addition.config_text),
    )


def change_goal(session: Session, row: GoalRow, goal: Goal) -> None:
    """Change a goal's rows to the state of the goal."""
    for column, value in _columns(goal).items():
        setattr(row, column, value)
    for file in goal.files:
        session.merge(
            FileRow(job_id=row.job_id, goal_id=row.id, name=file.name, size=file.size, sha256=file.sha256)
        )


def job_of(session: Session, row: JobRow) -> Job:
    """Return a job with its goals, from its rows."""
    batch = session.get_one(BatchRow, (row.id, 0))
    result = None if batch.root is None else SourceResult.model_validate(batch.root)
    reference = None if batch.reference is None else ReferenceResult.model_validate(batch.reference)
    # Costs on hardware that was named after the root was made are in the plan alone.
    planned_costs = _COSTS.validate_python(batch.plan["source_costs"])
    files: dict[str, list[PackageFile]] = {}
    for file in session.scalars(select(FileRow).filter_by(job_id=row.id).order_by(FileRow.name)):
        files.setdefault(file.goal_id, []).append(PackageFile(file.name, file.size, file.sha256))
    query = select(GoalRow.__table__).filter_by(job_id=row.id).order_by(GoalRow.position)
    goals = session.execute(query).mappings()
    return Job(
        id=row.id,
        state=JobState(row.state),
        goals=tuple(_GOAL.validate_python({**goal, "files": files.get(goal["id"], ())}) for goal in goals),
        created_unix_ms=row.created_unix_ms,
        source=None if result is None else _source(result, reference, planned_costs),
        seconds=row.seconds,
        spent=row.spent,
        reason=row.reason,
    )


def _source(made: SourceResult, reference: ReferenceResult | None, planned_costs: Costs) -> Source:
    costs = {**planned_costs, **made.source_costs}
    source = Source(costs, metric=made.metric, formats=plugged_in_formats(costs))
    if reference is None:
        return source
    return replace(
        source,
        accuracy=reference.accuracy,
        tuned_accuracy=reference.tuned_accuracy,
        measured=reference.measured,
    )


def checkpoint_row(job_id: str, batch: int, node: int, result: AdaptResult) -> CheckpointRow:
    """Return the row of a node's checkpoint."""
    return CheckpointRow(
        job_id=job_id,
        batch=batch,
        node=node,
        artifact=result.checkpoint,
        costs=result.costs,
        accuracy=result.accuracy,
        met=result.met,
        reason=result.reason,
        steps=result.steps,
        spent=result.spent,
    )


def edge_row(job_id: str, batch: int, node: int, record: EdgeRecord) -> EdgeRow:
    """Return the row of an edge that was adapted."""
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
        met=row.met,
        reason=row.reason,
        steps=row.steps,
        spent=row.spent,
    )


def event_rows(job_id: str, events: Iterable[GoalEvent], first: int, unix_ms: int) -> list[EventRow]:
    """Return the rows of simultaneous events, the first of which gets the number `first`."""
    return [
        EventRow(job_id=job_id, sequence=sequence, unix_ms=unix_ms, goal_id=goal_id, kind=kind, body=body)
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


def read_event(kind: str, body: dict[str, object]) -> Event:
    """Return an event from its row's `kind` and `body`."""
    match kind:
        case "job":
            return JobState(body["state"])
        case "goal":
            return GoalState(body["state"])
        case _:
            return _PROGRESS.validate_python(body)
