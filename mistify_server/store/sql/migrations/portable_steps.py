"""Steps from schema version 31, which migrate SQLite and PostgreSQL alike; see `steps`.

Such a step gets a connection of SQLAlchemy. Both databases know the plain SQL for changing rows and for
dropping columns; tables and columns are created with the types in `columns`, and JSON is changed by
`portable`, because the types and the functions for JSON differ.
"""

from typing import Any

from sqlalchemy import Column, Connection, ForeignKeyConstraint, MetaData, Table

from mistify_server.store.sql.columns import INTEGER_COLUMN, JSON_COLUMN, TEXT_COLUMN
from mistify_server.store.sql.migrations.portable import add_column, change_json


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
