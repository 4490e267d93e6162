import fcntl
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.directory import backend_of, open_store
from mistify_server.store.models import NamedModel
from mistify_server.store.sql.migrations import migrate
from mistify_server.store.sql.migrations.steps import OLDEST, STEPS, Step

CURRENT = migrate.SCHEMA_VERSION
NAMES = ("tiny", "small")


@pytest.fixture
def old(directory: Path) -> Path:
    """Return a store of the current schema with two models, which additional migration steps make old."""
    with open_store(directory) as store:
        for name in NAMES:
            store.models.add(NamedModel(name, "artifact", "file.h5"))
    return directory


@pytest.fixture
def old_sqlite(tmp_path: Path) -> Path:
    """Return the same in SQLite."""
    with open_store(tmp_path) as store:
        for name in NAMES:
            store.models.add(NamedModel(name, "artifact", "file.h5"))
    return tmp_path


@pytest.fixture
def add_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def add(*steps: Step) -> None:
        monkeypatch.setattr(migrate, "STEPS", (*STEPS, *steps))
        monkeypatch.setattr(migrate, "SCHEMA_VERSION", CURRENT + len(steps))

    return add


def contents(store: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Return the names of columns and the rows of each table."""
    with backend_of(store).migration_engine().connect() as connection:
        tables = inspect(connection)
        return {
            table: (
                sorted(column["name"] for column in tables.get_columns(table)),
                sorted(map(str, connection.execute(text(f"SELECT * FROM {table}")).all())),  # noqa: S608
            )
            for table in tables.get_table_names()
        }


def dump(path: Path) -> list[str]:
    """Return a database in SQLite as statements."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def set_meta(store: Path, **values: object) -> None:
    with backend_of(store).migration_engine().begin() as connection:
        for key, value in values.items():
            row = {"key": key, "value": str(value)}
            connection.execute(text("UPDATE meta SET value = :value WHERE key = :key"), row)


def step(statement: str) -> Step:
    return lambda connection: connection.exec_driver_sql(statement) and None


FIRST = step("UPDATE models SET name = name || '!'")
SECOND = step("UPDATE models SET name = name || '?'")


def refused(store: Path, message: str, code: ErrorCode = ErrorCode.STORE_VERSION) -> None:
    before = contents(store)
    with pytest.raises(MistifyError, match=message) as raised, open_store(store):
        pass
    assert raised.value.code is code
    assert contents(store) == before


def test_missing_migration_steps_are_applied_in_order(old: Path, add_steps: Callable[..., None]) -> None:
    add_steps(FIRST, SECOND)
    for _ in range(2):
        with open_store(old) as store:
            assert {model.name for model in store.models.all()} == {"tiny!?", "small!?"}
    add_steps(FIRST, SECOND, FIRST)
    with open_store(old) as store:
        assert {model.name for model in store.models.all()} == {"tiny!?!", "small!?!"}


def test_the_database_is_backed_up_before_the_first_step(
    old_sqlite: Path, add_steps: Callable[..., None]
) -> None:
    database = old_sqlite / "mistify.db"
    before = dump(database)
    add_steps(FIRST, SECOND)
    with open_store(old_sqlite):
        pass
    copy = old_sqlite / f"mistify.db.v{CURRENT}"
    assert dump(copy) == before != dump(database)
    assert copy.stat().st_mode & 0o077 == 0


def test_a_store_of_the_current_schema_is_not_backed_up(old_sqlite: Path) -> None:
    with open_store(old_sqlite):
        pass
    assert not list(old_sqlite.glob("mistify.db.v*"))


@pytest.mark.parametrize(
    "failing",
    [
        step("UPDATE nowhere SET x = 1"),
        lambda connection: {}["absent"],
        step(
            "INSERT INTO events (job_id, sequence, unix_ms, kind, body) VALUES ('nobody', 1, 1, 'job', '{}')"
        ),
    ],
)
def test_a_failed_step_leaves_the_store_unchanged(
    old: Path, add_steps: Callable[..., None], failing: Step
) -> None:
    add_steps(FIRST, failing)
    refused(old, "cannot be migrated .* is as it was")
    add_steps(FIRST, SECOND)
    with open_store(old) as store:
        assert {model.name for model in store.models.all()} == {"tiny!?", "small!?"}


def test_the_error_for_a_store_of_a_newer_version_names_the_version(old: Path) -> None:
    set_meta(old, schema_version=CURRENT + 1, mistify_version="7.8.9")
    refused(old, f"written by Mistify 7.8.9 .*schema is {CURRENT + 1}, .* run Mistify 7.8.9")


@pytest.mark.parametrize("version", [OLDEST - 1, "new"])
def test_a_store_with_an_unknown_schema_is_refused(old: Path, version: object) -> None:
    set_meta(old, schema_version=version)
    refused(old, f"schema is {version}.* or use another --store")


def test_a_store_is_not_migrated_while_a_server_uses_it(old: Path, add_steps: Callable[..., None]) -> None:
    add_steps(FIRST)
    with (old / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(old, "in use by another server", ErrorCode.UNAVAILABLE)
