"""Tables of the store.

A change to a table, or to JSON in a table, needs a step in `migrations.portable_steps`, which is listed in
`migrations.steps` and raises the version.
"""

from sqlalchemy import ForeignKey, ForeignKeyConstraint, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import Float

from mistify_server.store.sql.columns import INTEGER_COLUMN, JSON_COLUMN, TEXT_COLUMN


class Table(DeclarativeBase):
    """Base class of all tables. Costs and budgets (by axis) and seconds (by activity) are JSON objects."""

    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy's own way of declaring it)
        dict[str, float]: JSON_COLUMN,
        dict[str, object]: JSON_COLUMN,
        list[dict[str, object]]: JSON_COLUMN,
        list[str]: JSON_COLUMN,
        str: TEXT_COLUMN,
        int: INTEGER_COLUMN,
        float: Float(),
    }


class MetaRow(Table):
    """Metadata of the store."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class ModelRow(Table):
    """A name in the model repository; `key` is the case-folded name."""

    __tablename__ = "models"
    key: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    artifact: Mapped[str]
    file_name: Mapped[str]


class TokenRow(Table):
    """A token of a caller, with its limits (`Quota`); `scopes` are separated by spaces.

    A row without scopes has the limits of a token that was revoked.
    """

    __tablename__ = "tokens"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[str]
    created_unix_ms: Mapped[int]
    expires_unix_ms: Mapped[int | None]
    max_uploads: Mapped[int | None]
    max_jobs: Mapped[int | None]
    max_workers: Mapped[int | None]


class JobRow(Table):
    """A job; `number` is its position in the order of submission.

    A removed job is kept until its removal cannot be undone any more. `traceparent` is that of the call that
    queued it last; empty if it was not traced. `idempotency_key` is `TENANT/KEY`, so that tenants cannot
    meet in one. `owner` is the id of the server that runs it, if any; `fence` rises whenever this changes,
    which nobody else can then mistake for an earlier state.
    """

    __tablename__ = "jobs"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(unique=True)
    state: Mapped[str] = mapped_column(index=True)
    idempotency_key: Mapped[str | None] = mapped_column(unique=True)
    config_text: Mapped[str] = mapped_column(deferred=True)  # megabytes for thousands of goals
    config_sha256: Mapped[str]
    created_unix_ms: Mapped[int]
    submitted_by: Mapped[str] = mapped_column(server_default=text("''"))
    name: Mapped[str] = mapped_column(server_default=text("''"))
    tags: Mapped[list[str]] = mapped_column(server_default=text("'[]'"))
    priority: Mapped[str] = mapped_column(server_default=text("'normal'"))
    removed_unix_ms: Mapped[int | None]
    traceparent: Mapped[str] = mapped_column(server_default=text("''"))
    reason: Mapped[str]
    seconds: Mapped[float]
    spent: Mapped[dict[str, float]]
    tenant: Mapped[str] = mapped_column(index=True, server_default=text("'default'"))
    owner: Mapped[str | None]
    fence: Mapped[int] = mapped_column(server_default=text("0"))


class ServerRow(Table):
    """A server that shares the database with others, until its lease expires.

    Times are those of the database's clock, in seconds since 1970: of the last renewal, and of the first one
    without an expiry since. `busy_seconds` is how long its oldest task had been running when it renewed.
    """

    __tablename__ = "servers"
    id: Mapped[str] = mapped_column(primary_key=True)
    since: Mapped[float]
    renewed: Mapped[float]
    expires: Mapped[float]
    busy_seconds: Mapped[float]


class AdditionRow(Table):
    """Goals that were added to a job."""

    __tablename__ = "additions"
    __table_args__ = (UniqueConstraint("job_id", "idempotency_key"),)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    idempotency_key: Mapped[str | None]
    config_text: Mapped[str] = mapped_column(deferred=True)
    config_sha256: Mapped[str]


class BatchRow(Table):
    """A collective batch: its plan (`BatchPlan`), and, once they exist, root, reference and preparations.

    These are a `SourceResult`, a `ReferenceResult`, and a `PrepareResult` per prepared algorithm.
    """

    __tablename__ = "batches"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    plan: Mapped[dict[str, object]]
    root: Mapped[dict[str, object] | None]
    reference: Mapped[dict[str, object] | None]
    preparations: Mapped[dict[str, object]] = mapped_column(server_default=text("'{}'"))


class CheckpointRow(Table):
    """The adapted model of a node in a batch's goal tree."""

    __tablename__ = "checkpoints"
    __table_args__ = (ForeignKeyConstraint(["job_id", "batch"], ["batches.job_id", "batches.number"]),)
    job_id: Mapped[str] = mapped_column(primary_key=True)
    batch: Mapped[int] = mapped_column(primary_key=True)
    node: Mapped[int] = mapped_column(primary_key=True)
    artifact: Mapped[str]
    costs: Mapped[dict[str, float]]
    accuracy: Mapped[float]
    output_scores: Mapped[list[dict[str, object]]] = mapped_column(server_default=text("'[]'"))
    met: Mapped[bool]
    reason: Mapped[str]
    steps: Mapped[int]
    spent: Mapped[dict[str, float]]


class EdgeRow(Table):
    """An adapted edge (`EdgeRecord`), for choosing algorithms and predicting later edges."""

    __tablename__ = "edges"
    __table_args__ = (
        ForeignKeyConstraint(
            ["job_id", "batch", "node"], ["checkpoints.job_id", "checkpoints.batch", "checkpoints.node"]
        ),
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    job_id: Mapped[str]
    batch: Mapped[int]
    node: Mapped[int]
    subject: Mapped[str] = mapped_column(index=True)
    kind: Mapped[str] = mapped_column(index=True)
    record: Mapped[dict[str, object]]


class GoalRow(Table):
    """A goal; `position` is its index among the goals of the job."""

    __tablename__ = "goals"
    __table_args__ = (ForeignKeyConstraint(["job_id", "batch"], ["batches.job_id", "batches.number"]),)
    job_id: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    batch: Mapped[int]
    spec: Mapped[dict[str, object]] = mapped_column(server_default=text("'{}'"))
    metric: Mapped[str]
    parent: Mapped[str | None]
    algorithm: Mapped[str]
    choice: Mapped[str]
    warning: Mapped[str]
    state: Mapped[str]
    achieved: Mapped[dict[str, float]]
    measured: Mapped[dict[str, float]]
    accuracy: Mapped[float | None]
    reason: Mapped[str]
    note: Mapped[str]
    seconds: Mapped[float]
    steps: Mapped[int]
    branch_figures: Mapped[list[dict[str, object]]]
    output_scores: Mapped[list[dict[str, object]]] = mapped_column(server_default=text("'[]'"))
    precision_choice: Mapped[str]


class BranchesRow(Table):
    """The networks that a goal's package can switch between (`BranchResult`)."""

    __tablename__ = "branches"
    __table_args__ = (ForeignKeyConstraint(["job_id", "goal_id"], ["goals.job_id", "goals.id"]),)
    job_id: Mapped[str] = mapped_column(primary_key=True)
    goal_id: Mapped[str] = mapped_column(primary_key=True)
    result: Mapped[dict[str, object]]


class LayersRow(Table):
    """The layers of a goal's network, compared with the source's (`LayerTable`)."""

    __tablename__ = "layers"
    __table_args__ = (ForeignKeyConstraint(["job_id", "goal_id"], ["goals.job_id", "goals.id"]),)
    job_id: Mapped[str] = mapped_column(primary_key=True)
    goal_id: Mapped[str] = mapped_column(primary_key=True)
    layers: Mapped[dict[str, object]]


class GraphRow(Table):
    """The operators of a goal's packaged network (`NetworkGraph`)."""

    __tablename__ = "graphs"
    __table_args__ = (ForeignKeyConstraint(["job_id", "goal_id"], ["goals.job_id", "goals.id"]),)
    job_id: Mapped[str] = mapped_column(primary_key=True)
    goal_id: Mapped[str] = mapped_column(primary_key=True)
    graph: Mapped[dict[str, object]]


class CurvePointRow(Table):
    """A point of a goal's training curve (`ProgressUpdate`).

    Points with an accuracy (`measured`) are numbered and thinned out separately; `sequence` is the number of
    the point's event.
    """

    __tablename__ = "curve_points"
    __table_args__ = (ForeignKeyConstraint(["job_id", "goal_id"], ["goals.job_id", "goals.id"]),)
    job_id: Mapped[str] = mapped_column(primary_key=True)
    goal_id: Mapped[str] = mapped_column(primary_key=True)
    measured: Mapped[bool] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    sequence: Mapped[int]
    point: Mapped[dict[str, object]]


class FileRow(Table):
    """A file of a goal's package; its content is the artifact `sha256`."""

    __tablename__ = "files"
    __table_args__ = (ForeignKeyConstraint(["job_id", "goal_id"], ["goals.job_id", "goals.id"]),)
    job_id: Mapped[str] = mapped_column(primary_key=True)
    goal_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int]
    sha256: Mapped[str]


class EventRow(Table):
    """An event of a job; `kind` determines the format of `body`."""

    __tablename__ = "events"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    unix_ms: Mapped[int]
    goal_id: Mapped[str | None]
    kind: Mapped[str]
    body: Mapped[dict[str, object]]


class FleetRow(Table):
    """The last status of a device (`DeviceStatus`), and the time of its receipt."""

    __tablename__ = "fleet"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[dict[str, object]]
    seen_unix_ms: Mapped[int] = mapped_column(index=True)


class RolloutRow(Table):
    """A roll-out of a package (`Rollout`); `number` is its position in the order of their starts.

    The job is no foreign key: a roll-out that has ended outlives its job.
    """

    __tablename__ = "rollouts"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(unique=True)
    job_id: Mapped[str] = mapped_column(index=True)
    state: Mapped[str]
    rollout: Mapped[dict[str, object]]
    tenant: Mapped[str] = mapped_column(server_default=text("'default'"))


class DeviceRow(Table):
    """A measured device (`Device`), its measurements (`DeviceTable`), and its profiles.

    `reports` maps each profile to the ratios of measured to predicted latency, by the packages' goals.
    """

    __tablename__ = "devices"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    device: Mapped[dict[str, object]]
    readings: Mapped[dict[str, object]]
    profiles: Mapped[list[dict[str, object]]]
    reports: Mapped[dict[str, object]]


class GroupRow(Table):
    """A group of devices that tune together: a collective batch and a correlation measure."""

    __tablename__ = "tuning_groups"
    __table_args__ = (ForeignKeyConstraint(["job_id", "batch"], ["batches.job_id", "batches.number"]),)
    name: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str]
    batch: Mapped[int]
    correlation: Mapped[str]
    settings: Mapped[dict[str, object]]


class MemberRow(Table):
    """A member of a group, until its lease ends."""

    __tablename__ = "tuning_members"
    group: Mapped[str] = mapped_column(ForeignKey("tuning_groups.name"), primary_key=True)
    member: Mapped[str] = mapped_column(primary_key=True)
    expires_unix_ms: Mapped[int] = mapped_column(index=True)


class PublicationRow(Table):
    """The latest publication of a member; `sha256` identifies its weights."""

    __tablename__ = "tuning_publications"
    __table_args__ = (
        ForeignKeyConstraint(["group", "member"], ["tuning_members.group", "tuning_members.member"]),
    )
    group: Mapped[str] = mapped_column(primary_key=True)
    member: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int]
    job_id: Mapped[str]
    goal_id: Mapped[str]
    package_sha256: Mapped[str]
    loss: Mapped[float]
    accuracy: Mapped[float]
    hints: Mapped[dict[str, object]]
    size: Mapped[int]
    sha256: Mapped[str] = mapped_column(index=True)
