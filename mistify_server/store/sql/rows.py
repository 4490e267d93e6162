"""Conversion between rows and domain objects: jobs, goals, checkpoints and events."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeAlias, get_type_hints

from pydantic import TypeAdapter
from sqlalchemy import (
    JSON,
    ColumnElement,
    Row,
    Text,
    bindparam,
    func,
    insert,
    literal,
    select,
    type_coerce,
    update,
)
from sqlalchemy.orm import Session

from mistify.config.data.metric import OutputScore
from mistify.costs.axes import plugged_in_formats
from mistify.costs.budget import Costs
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import (
    Goal,
    GoalState,
    Job,
    JobState,
    PackageFile,
    ProgressUpdate,
    Source,
)
from mistify.jobs.part import GoalSelection, JobPart
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
)
from mistify_server.tasks.results import AdaptResult, PrepareResult, ReferenceResult, SourceResult

Event: TypeAlias = JobState | GoalState | ProgressUpdate

#: The id of an event's goal (None for the job and its source), and the event.
GoalEvent: TypeAlias = tuple[str | None, Event]

#: Number of cached values per column.
_REMEMBERED: Final = 1_000

_OPEN = [state.value for state in GoalState if not state.ended]

_COSTS: TypeAdapter[dict[str, float]] = TypeAdapter(dict[str, float])
_GOAL: TypeAdapter[Goal] = TypeAdapter(Goal)
_SCORES: TypeAdapter[tuple[OutputScore, ...]] = TypeAdapter(tuple[OutputScore, ...])
_PROGRESS: TypeAdapter[ProgressUpdate] = TypeAdapter(ProgressUpdate)


def _reader(column: ColumnElement[Any], kind: Any) -> Callable[[Any], Any]:
    """Return a function that converts a column of a goal's row (JSON as text) to a type.

    Goals of a job share most of their values, so recently parsed values are cached.
    """
    if isinstance(column.type, JSON):
        return lru_cache(_REMEMBERED)(TypeAdapter(kind).validate_json)
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else lambda value: value


_KINDS = {name: kind for name, kind in get_type_hints(Goal, include_extras=True).items() if name != "files"}
_OF_GOAL = GoalRow.__table__.columns
_READERS = {name: _reader(_OF_GOAL[name], kind) for name, kind in _KINDS.items()}
_GOAL_COLUMNS = [
    type_coerce(_OF_GOAL[name], Text) if isinstance(_OF_GOAL[name].type, JSON) else _OF_GOAL[name]
    for name in _READERS
]


def digest(text: str) -> str:
    """Return the SHA-256 (hex) of a config text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def insert_job(session: Session, submission: Submission) -> None:
    """Insert the rows of a new job."""
    job = submission.job
    session.add(
        JobRow(
            id=job.id,
            state=job.state.value,
            idempotency_key=submission.idempotency_key,
            config_text=submission.config_text,
            config_sha256=digest(submission.config_text),
            created_unix_ms=job.created_unix_ms,
            submitted_by=job.submitted_by,
            name=job.name,
            reason=job.reason,
            seconds=job.seconds,
            spent=dict(job.spent),
        )
    )
    session.flush()
    session.add_all(
        BatchRow(
            job_id=job.id, number=plan.number, plan=plan.model_dump(mode="json"), root=None, reference=None
        )
        for plan in submission.plans
    )
    session.flush()
    insert_goals(session, job.id, job.goals, 0)


def insert_goals(session: Session, job_id: str, goals: Iterable[Goal], first: int) -> None:
    """Insert the rows of new goals, starting at the position `first` in the job."""
    rows = [
        {"job_id": job_id, "position": position, **_columns(goal)}
        for position, goal in enumerate(goals, first)
    ]
    if rows:
        session.execute(insert(GoalRow), rows)


def _columns(goal: Goal) -> dict[str, Any]:
    """Return the columns of a goal's row; its files have separate rows."""
    columns: dict[str, Any] = _GOAL.dump_python(goal, mode="json", by_alias=True, exclude={"files"})
    return columns


def addition_row(job_id: str, addition: Addition) -> AdditionRow:
    """Return the row for an addition of goals to a job."""
    return AdditionRow(
        job_id=job_id,
        idempotency_key=addition.idempotency_key,
        config_text=addition.config_text,
        config_sha256=digest(addition.config_text),
    )


def change_goal(session: Session, row: GoalRow, goal: Goal) -> None:
    """Update a goal's rows."""
    for column, value in _columns(goal).items():
        setattr(row, column, value)
    for file in goal.files:
        session.merge(
            FileRow(job_id=row.job_id, goal_id=row.id, name=file.name, size=file.size, sha256=file.sha256)
        )


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
    of_goal = GoalRow.job_id == job_id, GoalRow.state.in_(_OPEN)
    number = func.row_number().over(order_by=GoalRow.position) + last_sequence(session, job_id)
    kind, body = _event_body(state)
    event = select(
        GoalRow.job_id, number, literal(unix_ms), GoalRow.id, literal(kind), literal(body, EventRow.body.type)
    ).where(*of_goal)
    columns = ["job_id", "sequence", "unix_ms", "goal_id", "kind", "body"]
    session.execute(insert(EventRow).from_select(columns, event))
    session.execute(update(GoalRow).where(*of_goal).values(state=state.value, reason=reason))


def count_states(session: Session, *which: ColumnElement[bool]) -> Counter[GoalState]:
    """Return the number of goals in each state."""
    query = select(GoalRow.state, func.count()).where(*which).group_by(GoalRow.state)
    return Counter({GoalState(state): count for state, count in session.execute(query)})


def job_of(session: Session, row: JobRow) -> Job:
    """Return a job with its goals from its rows."""
    return _job(row, _goals(session, row.id), _sources(session, row.id))


def part_of(session: Session, row: JobRow, selection: GoalSelection | None) -> JobPart:
    """Return a job with selected goals, or all goals, from its rows."""
    states = count_states(session, GoalRow.job_id == row.id)
    count, met = states.total(), states[GoalState.MET]
    if selection is None:
        return JobPart(job_of(session, row), count, met)
    if selection.goal_id:
        goals = _goals(session, row.id, GoalRow.id == selection.goal_id)
        if not goals:
            raise MistifyError(ErrorCode.NOT_FOUND, f'the job {row.id} has no goal "{selection.goal_id}"')
        return JobPart(_job(row, goals, _sources(session, row.id)), count, met)
    first = _first_position(selection.page_token)
    end = first + max(0, selection.page_size)
    shown = GoalRow.position >= first, GoalRow.position < end
    goals = _goals(session, row.id, *shown) if first < end else ()
    job = _job(row, goals, _sources(session, row.id))
    return JobPart(job, count, met, str(end) if end < count else "")


def parts_without_goals(session: Session, rows: Sequence[JobRow]) -> list[JobPart]:
    """Return jobs without goals and sources from their rows."""
    ids = [row.id for row in rows]
    query = select(GoalRow.job_id, GoalRow.state, func.count()).where(GoalRow.job_id.in_(ids))
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for job_id, state, count in session.execute(query.group_by(GoalRow.job_id, GoalRow.state)):
        counts[job_id][state] = count
    return [
        JobPart(_job(row, (), ()), total, states[GoalState.MET.value], "0" if total else "")
        for row in rows
        for states in [counts[row.id]]
        for total in [states.total()]
    ]


def _first_position(token: str) -> int:
    """Parse a page token, which is the position of the page's first goal."""
    if token and not (token.isascii() and token.isdecimal() and len(token) < 10):
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"got the page token {token[:40]!r}; expected the previous page's token; start without one",
        )
    return int(token or 0)


def _job(row: JobRow, goals: tuple[Goal, ...], sources: tuple[Source, ...]) -> Job:
    return Job(
        id=row.id,
        state=JobState(row.state),
        goals=goals,
        created_unix_ms=row.created_unix_ms,
        submitted_by=row.submitted_by,
        name=row.name,
        sources=sources,
        seconds=row.seconds,
        spent=row.spent,
        reason=row.reason,
    )


def _sources(session: Session, job_id: str) -> tuple[Source, ...]:
    """Return the sources of the batches with finished roots, in the order of the batches."""
    # Only two keys of a plan with thousands of nodes are read. Costs on hardware that was added after the
    # root was made are only in the plan.
    planned = BatchRow.plan["model_name"], BatchRow.plan["source_costs"]
    columns = select(BatchRow.number, *planned, BatchRow.root, BatchRow.reference, BatchRow.preparations)
    rows = session.execute(columns.where(BatchRow.job_id == job_id).order_by(BatchRow.number))
    return tuple(
        replace(
            _source(
                SourceResult.model_validate(root),
                None if reference is None else ReferenceResult.model_validate(reference),
                _COSTS.validate_python(planned_costs),
                {name: PrepareResult.model_validate(made) for name, made in preparations.items()},
            ),
            batch=number,
            model=model,
        )
        for number, model, planned_costs, root, reference, preparations in rows
        if root is not None
    )


def _goals(session: Session, job_id: str, *which: ColumnElement[bool]) -> tuple[Goal, ...]:
    """Return goals of a job with their files, in order."""
    goals = select(*_GOAL_COLUMNS).where(GoalRow.job_id == job_id, *which)
    found = session.execute(goals.order_by(GoalRow.position)).all()
    query = select(FileRow).where(FileRow.job_id == job_id).order_by(FileRow.name)
    if which:
        query = query.where(FileRow.goal_id.in_(select(GoalRow.id).where(GoalRow.job_id == job_id, *which)))
    files: dict[str, list[PackageFile]] = {}
    for file in session.scalars(query):
        files.setdefault(file.goal_id, []).append(PackageFile(file.name, file.size, file.sha256))
    return tuple(_goal(row, files) for row in found)


def _goal(row: Row[Any], files: Mapping[str, Sequence[PackageFile]]) -> Goal:
    values = {name: read(value) for (name, read), value in zip(_READERS.items(), row, strict=True)}
    return Goal(**values, files=tuple(files.get(values["id"], ())))


def _source(
    made: SourceResult,
    reference: ReferenceResult | None,
    planned_costs: Costs,
    prepared: Mapping[str, PrepareResult],
) -> Source:
    costs = {**planned_costs, **made.source_costs}
    source = Source(
        costs,
        metric=made.metric,
        formats=plugged_in_formats(costs),
        steps=made.steps,
        preparing_steps={name: result.steps for name, result in prepared.items()},
    )
    if reference is None:
        return source
    return replace(
        source,
        accuracy=reference.accuracy,
        tuned_accuracy=reference.tuned_accuracy,
        output_scores=reference.output_scores,
        tuned_output_scores=reference.tuned_output_scores,
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
    rows = [
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
    if rows:
        session.execute(insert(EventRow), rows)


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
