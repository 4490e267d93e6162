"""Steps from schema version 31, which migrate SQLite and PostgreSQL alike; see `steps`.

Such a step gets a connection of SQLAlchemy. Both databases know the plain SQL for changing rows and for
dropping columns; tables and columns are created with the types in `columns`, and JSON is changed by
`portable`, because the types and the functions for JSON differ.
"""

from typing import Any

from sqlalchemy import Column, Connection, Float, ForeignKeyConstraint, MetaData, Table, text

from mistify_server.store.sql.columns import INTEGER_COLUMN, JSON_COLUMN, TEXT_COLUMN
from mistify_server.store.sql.migrations.portable import add_column, change_json, recreate


def add_tags_and_removals(connection: Connection) -> None:
    """Add the tags of jobs and the times of their removals; earlier jobs have neither."""
    add_column(connection, "jobs", Column("tags", JSON_COLUMN, nullable=False, server_default="[]"))
    add_column(connection, "jobs", Column("removed_unix_ms", INTEGER_COLUMN))


def add_graphs_and_paces(connection: Connection) -> None:
    """Create the table of the operators of networks, which are unknown for earlier packages.

    Earlier plans keep their numbers of training steps, and all preparations of their algorithms are needed.
    """

    def change_plan(plan: dict[str, Any]) -> None:
        plan["recipe"] |= {"pace": 1.0, "source_pace": 1.0}
        for profile in (plan["estimates"] or {"profiles": {}})["profiles"].values():
            profile["preparation_pays_from"] = 0.0

    change_json(connection, "batches", "plan", change_plan)
    tables = MetaData()
    Table("goals", tables, autoload_with=connection, resolve_fks=False)
    Table(
        "graphs",
        tables,
        Column("job_id", TEXT_COLUMN, primary_key=True),
        Column("goal_id", TEXT_COLUMN, primary_key=True),
        Column("graph", JSON_COLUMN, nullable=False),
        ForeignKeyConstraint(["job_id", "goal_id"], ["goals.job_id", "goals.id"]),
    ).create(connection)


def add_rollouts(connection: Connection) -> None:
    """Create the table of roll-outs."""
    Table(
        "rollouts",
        MetaData(),
        Column("number", INTEGER_COLUMN, primary_key=True),
        Column("id", TEXT_COLUMN, nullable=False, unique=True),
        Column("job_id", TEXT_COLUMN, nullable=False, index=True),
        Column("state", TEXT_COLUMN, nullable=False),
        Column("rollout", JSON_COLUMN, nullable=False),
    ).create(connection)


def add_traces(connection: Connection) -> None:
    """Add the positions of jobs in traces; earlier jobs have none."""
    add_column(connection, "jobs", Column("traceparent", TEXT_COLUMN, nullable=False, server_default=""))


def add_priorities_and_limits(connection: Connection) -> None:
    """Add the priorities of jobs, which are normal, and the limits of tokens, of which there are none."""
    priority = Column("priority", TEXT_COLUMN, nullable=False, server_default="normal")
    add_column(connection, "jobs", priority)
    for limited in ("uploads", "jobs", "workers"):
        add_column(connection, "tokens", Column(f"max_{limited}", INTEGER_COLUMN))


def add_tenants(connection: Connection) -> None:
    """Add the tenants of jobs, tokens, devices and roll-outs; everything there is belongs to `default`.

    Names of tokens and devices, and idempotency keys, become unique within a tenant instead of the server.
    """
    for table in ("jobs", "rollouts"):
        add_column(connection, table, Column("tenant", TEXT_COLUMN, nullable=False, server_default="default"))
    connection.execute(text("CREATE INDEX ix_jobs_tenant ON jobs (tenant)"))
    connection.execute(text("UPDATE jobs SET idempotency_key = 'default/' || idempotency_key"))
    new = MetaData()

    def named(table: str, *columns: Column[Any]) -> Table:
        keys = (Column(key, TEXT_COLUMN, primary_key=True) for key in ("tenant", "name"))
        return Table(table, new, *keys, *columns)

    limits = (Column(f"max_{limited}", INTEGER_COLUMN) for limited in ("uploads", "jobs", "workers"))
    tokens = named(
        "tokens",
        Column("sha256", TEXT_COLUMN, nullable=False, unique=True),
        Column("scopes", TEXT_COLUMN, nullable=False),
        Column("created_unix_ms", INTEGER_COLUMN, nullable=False),
        Column("expires_unix_ms", INTEGER_COLUMN),
        *limits,
    )
    fleet = named(
        "fleet",
        Column("status", JSON_COLUMN, nullable=False),
        Column("seen_unix_ms", INTEGER_COLUMN, nullable=False, index=True),
    )
    parts = ("device", "readings", "profiles", "reports")
    devices = named("devices", *(Column(part, JSON_COLUMN, nullable=False) for part in parts))
    for new_table in (tokens, fleet, devices):
        recreate(connection, new_table, tenant="default")


def add_leases(connection: Connection) -> None:
    """Add the servers that run jobs, and the numbers by which late changes are recognized."""
    add_column(connection, "jobs", Column("owner", TEXT_COLUMN))
    add_column(connection, "jobs", Column("fence", INTEGER_COLUMN, nullable=False, server_default=text("0")))


def add_servers(connection: Connection) -> None:
    """Create the table of servers that share a database."""
    Table(
        "servers",
        MetaData(),
        Column("id", TEXT_COLUMN, primary_key=True),
        *(Column(time, Float(), nullable=False) for time in ("since", "renewed", "expires")),
        Column("busy_seconds", Float(), nullable=False),
    ).create(connection)


def add_spared_steps(connection: Connection) -> None:
    """Set the loss of the sources of earlier plans to unknown, and earlier edges to have spared no steps."""

    def change_plan(plan: dict[str, Any]) -> None:
        if plan["estimates"] is not None:
            plan["estimates"]["nats"] = None

    change_json(connection, "batches", "plan", change_plan)
    change_json(connection, "edges", "record", lambda record: record["case"].update(spared=0))
