"""Jobs and goals from their rows."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import Any, Final, get_type_hints

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Row,
    Text,
    bindparam,
    func,
    literal,
    select,
    true,
    type_coerce,
)
from sqlalchemy.orm import Session, aliased

from mistify.config.data.dataset import DatasetConfig
from mistify.costs.axes import plugged_in_formats
from mistify.costs.budget import Costs
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import (
    Goal,
    GoalState,
    Job,
    JobPriority,
    JobState,
    PackageFile,
    Source,
)
from mistify.jobs.part import GoalSelection, JobPart, first_position, no_goal
from mistify.package.manifest import MANIFEST
from mistify.package.signature import SIGNATURE_FILE
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.jobs import JobOrigin, StoredPackage
from mistify_server.store.plans import BatchInputs, BatchPlan, BatchState
from mistify_server.store.sql.columns import JSON_COLUMN, json_member
from mistify_server.store.sql.rows import adapt_result, digest, tenant_key
from mistify_server.store.sql.schema import (
    AdditionRow,
    BatchRow,
    BranchesRow,
    CheckpointRow,
    EdgeRow,
    EventRow,
    FileRow,
    GoalRow,
    JobRow,
)
from mistify_server.store.sql.versions import of_this_version, state_of
from mistify_server.tasks.results import BranchResult, PrepareResult, ReferenceResult, SourceResult

#: Number of cached values per column.
_REMEMBERED: Final = 1_000


#: States of unfinished jobs.
UNFINISHED: Final = tuple(state.value for state in JobState if not state.ended)

#: The condition that a job may be unfinished: it is in no state that this version knows to be an end.
MAY_GO_ON: Final = JobRow.state.not_in([state.value for state in JobState if state.ended])

#: The latest edges of a model with its data, and then those of the same kind of network. Making these
#: statements takes as long as executing them.
_OWN_EDGE: Final = EdgeRow.subject == bindparam("subject")
_LATEST_EDGES: Final = (
    select(EdgeRow.number, EdgeRow.record)
    .where(_OWN_EDGE | (EdgeRow.kind == bindparam("kind")))
    .order_by(_OWN_EDGE.desc(), EdgeRow.number.desc())
    .limit(bindparam("limit"))
)
_LATEST_EDGES_OF_TENANT: Final = _LATEST_EDGES.where(
    EdgeRow.job_id.in_(select(JobRow.id).where(JobRow.tenant == bindparam("tenant")))
)

#: Those of some idempotency keys that are known.
_KNOWN_KEYS: Final = select(JobRow.idempotency_key).where(
    JobRow.idempotency_key.in_(bindparam("keys", expanding=True))
)

_COSTS: TypeAdapter[dict[str, float]] = TypeAdapter(dict[str, float])


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


def of_tenant(tenant: str | None) -> ColumnElement[bool]:
    """Return the condition that a job belongs to a tenant; None for all jobs."""
    return true() if tenant is None else JobRow.tenant == tenant


def count_unfinished(session: Session, tenant: str | None, submitter: str) -> int:
    """Return the number of unfinished jobs that a caller has submitted."""
    own = of_tenant(tenant), JobRow.submitted_by == submitter, MAY_GO_ON
    return session.scalar(select(func.count()).select_from(JobRow).where(*own)) or 0


def count_states(session: Session, *which: ColumnElement[bool]) -> Counter[str]:
    """Return the number of goals by the value of their state, which only newer versions may know."""
    rows = session.execute(select(GoalRow.state, func.count()).where(*which).group_by(GoalRow.state))
    return Counter({state: int(count) for state, count in rows})


def job_of(session: Session, row: JobRow) -> Job:
    """Return a job with its goals from its rows."""
    return _job(row, _goals(session, row.id), _sources(session, row.id))


def part_of(session: Session, row: JobRow, selection: GoalSelection | None) -> JobPart:
    """Return a job with selected goals, or all goals, from its rows."""
    states = count_states(session, GoalRow.job_id == row.id)
    count, met = states.total(), states[GoalState.MET.value]
    if selection is None:
        return JobPart(job_of(session, row), count, met)
    if selection.goal_id:
        goals = _goals(session, row.id, GoalRow.id == selection.goal_id)
        if not goals:
            raise no_goal(row.id, selection.goal_id)
        return JobPart(_job(row, goals, _sources(session, row.id)), count, met)
    first = first_position(selection.page_token)
    end = first + max(0, selection.page_size)
    shown = GoalRow.position >= first, GoalRow.position < end
    goals = _goals(session, row.id, *shown) if first < end else ()
    job = _job(row, goals, _sources(session, row.id))
    return JobPart(job, count, met, str(end) if end < count else "")


def goalless_job(row: JobRow) -> Job:
    """Return a job without its goals and sources from its row."""
    return _job(row, (), ())


def _job(row: JobRow, goals: tuple[Goal, ...], sources: tuple[Source, ...]) -> Job:
    with of_this_version(row.id):
        priority = JobPriority(row.priority)
    return Job(
        id=row.id,
        state=state_of(row),
        goals=goals,
        created_unix_ms=row.created_unix_ms,
        submitted_by=row.submitted_by,
        name=row.name,
        tags=tuple(row.tags),
        priority=priority,
        removed_unix_ms=row.removed_unix_ms,
        sources=sources,
        seconds=row.seconds,
        spent=row.spent,
        reason=row.reason,
    )


def _sources(session: Session, job_id: str) -> tuple[Source, ...]:
    """Return the sources of the batches with finished roots, in the order of the batches."""
    # Only two keys of a plan with thousands of nodes are read. Costs on hardware that was added after the
    # root was made are only in the plan.
    planned = json_member(BatchRow.plan, "model_name"), json_member(BatchRow.plan, "source_costs")
    columns = select(BatchRow.number, *planned, BatchRow.root, BatchRow.reference, BatchRow.preparations)
    rows = session.execute(columns.where(BatchRow.job_id == job_id).order_by(BatchRow.number))
    with of_this_version(job_id):
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
    rows = session.execute(goals.order_by(GoalRow.position)).all()
    query = select(FileRow).where(FileRow.job_id == job_id).order_by(FileRow.name)
    if which:
        query = query.where(FileRow.goal_id.in_(select(GoalRow.id).where(GoalRow.job_id == job_id, *which)))
    files: dict[str, list[PackageFile]] = {}
    for file in session.scalars(query):
        files.setdefault(file.goal_id, []).append(PackageFile(file.name, file.size, file.sha256))
    with of_this_version(job_id):
        return tuple(_goal(row, files) for row in rows)


def stored_packages(session: Session) -> Iterator[StoredPackage]:
    """Yield the packages of all goals, with their signatures."""
    signature = aliased(FileRow)
    of_same_goal = (signature.job_id == FileRow.job_id) & (signature.goal_id == FileRow.goal_id)
    query = (
        select(FileRow.job_id, FileRow.goal_id, FileRow.sha256, signature.size, signature.sha256)
        .outerjoin(signature, of_same_goal & (signature.name == SIGNATURE_FILE))
        .where(FileRow.name == MANIFEST)
        .order_by(FileRow.job_id, FileRow.goal_id)
    )
    for job_id, goal_id, manifest, size, sha256 in session.execute(query):
        signed = None if sha256 is None else PackageFile(SIGNATURE_FILE, size, sha256)
        yield StoredPackage(job_id, goal_id, manifest, signed)


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


def job_row(session: Session, job_id: str, tenant: str | None = None) -> JobRow:
    """Return the row of a job of a tenant; None for all tenants.

    Raises:
        MistifyError: NOT_FOUND, there is none, or it belongs to another tenant, which makes no difference.
    """
    row = session.scalar(select(JobRow).where(JobRow.id == job_id, of_tenant(tenant)))
    if row is None:
        raise MistifyError(ErrorCode.NOT_FOUND, f'there is no job "{job_id}"; `mistify jobs` lists them')
    return row


def batch_states(session: Session, job_id: str) -> list[BatchState]:
    """Return a job's batches, in order, with all their results."""
    rows = session.scalars(select(BatchRow).filter_by(job_id=job_id).order_by(BatchRow.number))
    with of_this_version(job_id):
        return [_batch_state(session, row) for row in rows]


def _batch_state(session: Session, row: BatchRow) -> BatchState:
    checkpoints = session.scalars(select(CheckpointRow).filter_by(job_id=row.job_id, batch=row.number))
    branches = session.scalars(
        select(BranchesRow)
        .join(GoalRow, (GoalRow.job_id == row.job_id) & (GoalRow.id == BranchesRow.goal_id))
        .where(BranchesRow.job_id == row.job_id, GoalRow.batch == row.number)
    )
    return BatchState(
        plan=BatchPlan.model_validate(row.plan),
        root=None if row.root is None else SourceResult.model_validate(row.root),
        checkpoints={checkpoint.node: adapt_result(checkpoint) for checkpoint in checkpoints},
        branches={entry.goal_id: BranchResult.model_validate(entry.result) for entry in branches},
        reference=None if row.reference is None else ReferenceResult.model_validate(row.reference),
        preparations={name: PrepareResult.model_validate(made) for name, made in row.preparations.items()},
    )


def origin_of(session: Session, job: JobRow) -> JobOrigin:
    """Return the call that queued a job last."""
    state = json_member(EventRow.body, "state")
    queued = EventRow.kind == "job", state == literal(JobState.QUEUED.value, JSON_COLUMN)
    last = select(func.max(EventRow.unix_ms)).where(EventRow.job_id == job.id, *queued)
    return JobOrigin(job.traceparent, session.scalar(last) or job.created_unix_ms)


def inputs_of(session: Session, job_id: str) -> list[BatchInputs]:
    """Return the inputs of a job's batches, in order; the rest of their plans is not read."""
    plan = BatchRow.plan
    parts = select(
        json_member(plan, "model_name"),
        json_member(plan, "dataset"),
        json_member(plan, "recipe", "algorithm"),
        json_member(plan, "recipe", "settings"),
    )
    rows = session.execute(parts.where(BatchRow.job_id == job_id).order_by(BatchRow.number))
    with of_this_version(job_id):
        return [
            BatchInputs(model, DatasetConfig.model_validate(dataset), algorithm, settings)
            for model, dataset, algorithm, settings in rows
        ]


def latest_edges(
    connection: Connection, tenant: str | None, subject: str, kind: str, limit: int
) -> list[EdgeRecord]:
    """Return the latest edges of a tenant's jobs as in `JobStore.edges`; None for all jobs.

    Those that only newer versions can read are left out.
    """
    values = {"subject": subject, "kind": kind, "tenant": tenant, "limit": limit}
    rows = connection.execute(_LATEST_EDGES if tenant is None else _LATEST_EDGES_OF_TENANT, values)
    edges = list[EdgeRecord]()
    for _, record in sorted(rows, key=lambda row: row.number):
        with suppress(ValidationError):
            edges.append(EdgeRecord.model_validate(record))
    return edges


def known_keys(connection: Connection, tenant: str, keys: Collection[str]) -> frozenset[str]:
    """Return those of some idempotency keys with which a tenant's jobs were submitted."""
    stored = {tenant_key(tenant, key): key for key in keys}
    return frozenset(stored[key] for key in connection.scalars(_KNOWN_KEYS, {"keys": list(stored)}))


def submitted(session: Session, tenant: str, key: str | None, config_text: str) -> JobRow | None:
    """Return the row of the job that a tenant submitted with a key; None if there is none.

    Raises:
        MistifyError: CONFLICT, the key is known with another config text.
    """
    stored = tenant_key(tenant, key)
    row = None if stored is None else session.scalar(select(JobRow).filter_by(idempotency_key=stored))
    if row is not None:
        check_same_config(key, row.id, row.config_sha256, config_text)
    return row


def was_added(session: Session, job_id: str, key: str, config_text: str) -> bool:
    """Return whether goals were added to a job with an idempotency key.

    Raises:
        MistifyError: CONFLICT, the key is known with another config text.
    """
    row = session.scalar(select(AdditionRow).filter_by(job_id=job_id, idempotency_key=key))
    if row is not None and row.config_sha256 != digest(config_text):
        raise MistifyError(
            ErrorCode.CONFLICT,
            f'the idempotency key "{key}" was used to add other goals to the job {job_id}; use a new key',
        )
    return row is not None


def check_same_config(key: str | None, job_id: str, sha256: str, config_text: str) -> None:
    """Raise an error if a repeated idempotency key comes with another config text.

    Args:
        job_id: The job that was submitted with the key.
        sha256: Digest of its config text.

    Raises:
        MistifyError: CONFLICT.
    """
    if sha256 != digest(config_text):
        raise MistifyError(
            ErrorCode.CONFLICT,
            f'the idempotency key "{key}" belongs to the job {job_id}, which has another config; '
            "use a new key",
        )
