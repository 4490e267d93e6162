"""Steps that migrate both kinds of databases, for a store that is taken back to their first version."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text

from mistify.costs.devices import Device, DeviceTable
from mistify.errors import ErrorCode, MistifyError
from mistify.fleet import DeviceReport
from mistify.jobs.job import Goal, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.part import JobPage
from mistify_server.identity.callers import DEFAULT_TENANT, Scope
from mistify_server.identity.tokens import AccessToken
from mistify_server.store.changes import Submission
from mistify_server.store.directory import backend_of, open_store
from mistify_server.store.plans import BatchPlan, BatchState
from mistify_server.store.sql.migrations.migrate import SCHEMA_VERSION
from mistify_server.store.sql.migrations.steps import OLDEST_PORTABLE
from tests.support.fleets import device
from tests.support.postgresql import Cluster, bound_to

JOB = Job("j", JobState.QUEUED, (Goal(id="a", batch=0, spec=PackageSpec({"flops": 1.0})),), created_unix_ms=5)

#: Tables whose names the portable steps make unique within a tenant, and the columns that they had before.
NAMED = {
    "tokens": "name, sha256, scopes, created_unix_ms, expires_unix_ms",
    "fleet": "name, status, seen_unix_ms",
    "devices": "name, device, readings, profiles, reports",
}

TOKEN = AccessToken("ci", DEFAULT_TENANT, "5" * 64, frozenset({Scope.READ}), 1_790_000_000_000)
REPORT = DeviceReport(device("pi"), datetime(2026, 11, 29, tzinfo=UTC))
BOARD = Device("board", "Cortex-A72", "LiteRT 2", (), datetime(2026, 1, 2, tzinfo=UTC))

#: What takes the portable steps back.
UNDONE = (
    "DROP TABLE servers",
    "ALTER TABLE jobs DROP COLUMN owner",
    "ALTER TABLE jobs DROP COLUMN fence",
    "DROP INDEX ix_jobs_tenant",
    "ALTER TABLE jobs DROP COLUMN tenant",
    "ALTER TABLE jobs DROP COLUMN traceparent",
    "ALTER TABLE jobs DROP COLUMN priority",
    "UPDATE jobs SET idempotency_key = 'key'",
    *(
        statement
        for table, columns in NAMED.items()
        for statement in (
            f"ALTER TABLE {table} RENAME TO {table}_now",
            f"CREATE TABLE {table} AS SELECT {columns} FROM {table}_now",  # noqa: S608
            f"DROP TABLE {table}_now",
        )
    ),
    "ALTER TABLE jobs DROP COLUMN tags",
    "ALTER TABLE jobs DROP COLUMN removed_unix_ms",
    "DROP TABLE graphs",
    "DROP TABLE rollouts",
)


@pytest.fixture
def old(directory: Path, plan: BatchPlan) -> Path:
    """Return a store of the first version that portable steps migrate, with a job, a token and devices."""
    with open_store(directory) as store:
        store.jobs.create(Submission(JOB, [plan], "[]", "key"))
        store.tokens.add(TOKEN)
        store.fleet.put([REPORT])
        store.devices.put(BOARD, DeviceTable("board", "Cortex-A72", "LiteRT 2", ()), [])
    with backend_of(directory).migration_engine().begin() as connection:
        for statement in UNDONE:
            connection.execute(text(statement))
        content = json.loads(connection.execute(text("SELECT plan FROM batches")).scalar_one())
        for key in ("pace", "source_pace"):
            del content["recipe"][key]
        connection.execute(text("UPDATE batches SET plan = :plan"), {"plan": json.dumps(content)})
        version = {"value": str(OLDEST_PORTABLE)}
        connection.execute(text("UPDATE meta SET value = :value WHERE key = 'schema_version'"), version)
    return directory


def schema(directory: Path) -> dict[str, Any]:
    """Return columns, keys, links and indexes by table, independent of the order of columns."""
    with backend_of(directory).migration_engine().connect() as connection:
        tables = inspect(connection)
        return {
            table: (
                {
                    (column["name"], str(column["type"]), column["nullable"], column["default"])
                    for column in tables.get_columns(table)
                },
                tables.get_pk_constraint(table)["constrained_columns"],
                sorted(
                    (key["constrained_columns"], key["referred_table"], key["referred_columns"])
                    for key in tables.get_foreign_keys(table)
                ),
                sorted((key["column_names"], bool(key["unique"])) for key in tables.get_indexes(table)),
                sorted(key["column_names"] for key in tables.get_unique_constraints(table)),
            )
            for table in tables.get_table_names()
        }


def test_a_store_of_the_first_portable_version_is_migrated(
    old: Path, plan: BatchPlan, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with open_store(old) as store:
        assert store.jobs.job("j") == JOB
        assert store.jobs.batches("j") == [BatchState(plan, None, {})]
        assert store.jobs.details("j", "a").graph is None
        own, others = store.of("default"), store.of("others")
        assert own.jobs.find("key", "[]") == JOB
        assert (own.tokens.all(), own.fleet.all(), own.devices.all()) == ([TOKEN], [REPORT], [BOARD])
        assert (others.tokens.all(), others.fleet.all(), others.devices.all()) == ([], [], [])
        assert others.jobs.page(9, 9) == JobPage([])
    new = tmp_path / "new"
    if backend_of(old).remote:
        bound_to(request.getfixturevalue("cluster").new_database(), new)
    else:
        with open_store(new):
            pass
    assert schema(old) == schema(new)


def test_postgresql_has_no_versions_that_only_sqlite_steps_migrate(cluster: Cluster, tmp_path: Path) -> None:
    store = bound_to(cluster.new_database(), tmp_path / "store")
    with backend_of(store).migration_engine().begin() as connection:
        older = {"value": str(OLDEST_PORTABLE - 1)}
        connection.execute(text("UPDATE meta SET value = :value WHERE key = 'schema_version'"), older)
    known = f"reads {OLDEST_PORTABLE} to {SCHEMA_VERSION}"
    with pytest.raises(MistifyError, match=f"too old .*{known}") as raised, open_store(store):
        pass
    assert raised.value.code is ErrorCode.STORE_VERSION
