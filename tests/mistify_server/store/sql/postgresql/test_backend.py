"""Databases that a server cannot use, and commits whose outcome is in doubt."""

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, Job, JobState, ProgressUpdate
from mistify.jobs.package_spec import PackageSpec
from mistify_server.cli import app
from mistify_server.store.changes import Advanced, Submission
from mistify_server.store.directory import open_store
from mistify_server.store.plans import BatchPlan
from tests.support.postgresql import LOCKED, PASSWORD, Cluster, bound_to

GOAL = Goal(id="a", batch=0, spec=PackageSpec({"flops": 1.0}))


def refused(store: Path, address: str, message: str, code: ErrorCode = ErrorCode.UNAVAILABLE) -> str:
    """Check that a server does not start with a database, and return its error."""
    result = CliRunner().invoke(
        app, ["serve", "--store", str(store), "--listen", "127.0.0.1:0", "--database", address]
    )
    assert (result.exit_code, message in result.output) == (code.exit_code, True), result.output
    assert "Traceback" not in result.output
    return result.output


def test_a_wrong_or_missing_password_is_explained_and_not_shown(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = cluster.url(user=LOCKED)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    refused(tmp_path / "store", address, "put the password into ~/.pgpass")
    monkeypatch.setenv("PGPASSWORD", "wr0ng")
    assert "wr0ng" not in refused(tmp_path / "store", address, "password authentication failed")


def test_a_password_is_read_from_a_file(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = cluster.new_database().rpartition("%3D")[2]
    cluster.execute(f"GRANT ALL ON SCHEMA {name} TO {LOCKED}")
    passwords = tmp_path / "pgpass"
    passwords.touch(0o600)
    passwords.write_text(f"*:*:*:{LOCKED}:{PASSWORD}\n")
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    store = bound_to(cluster.url(user=LOCKED, options=f"-csearch_path%3D{name}"), tmp_path / "store")
    with open_store(store) as opened:
        assert opened.tokens.all() == []


def test_a_missing_database_or_role_is_explained(cluster: Cluster, tmp_path: Path) -> None:
    refused(tmp_path, cluster.url("nowhere"), "create the database (createdb NAME) or correct --database")
    refused(tmp_path, cluster.url(user="nobody-else"), "create the role (createuser NAME)")


@pytest.mark.parametrize("host", ["/nowhere", "127.0.0.1:1"])
def test_a_postgresql_that_does_not_run_is_explained(cluster: Cluster, tmp_path: Path, host: str) -> None:
    address = f"postgresql://u@/jobs?host={host}" if host.startswith("/") else f"postgresql://u@{host}/jobs"
    refused(tmp_path, address, "start PostgreSQL, or correct --database")


def test_the_error_without_the_client_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    message = "pip install 'mistify-porting[postgresql]'"
    refused(tmp_path, "postgresql://u@/jobs", message, ErrorCode.INVALID_CONFIG)


def test_an_address_with_a_password_is_refused(tmp_path: Path) -> None:
    output = refused(
        tmp_path, f"postgresql://u:{PASSWORD}@/jobs", "--database: got", ErrorCode.INVALID_CONFIG
    )
    assert PASSWORD not in output


@pytest.mark.parametrize("table", ["jobs", "meta"])
def test_a_database_of_another_application_is_refused(cluster: Cluster, tmp_path: Path, table: str) -> None:
    address = cluster.new_database()
    cluster.execute(f"CREATE TABLE {address.rpartition('%3D')[2]}.{table} (id INTEGER)")
    refused(tmp_path, address, f"has a table {table} of another application", ErrorCode.CONFLICT)


def test_a_database_that_cannot_hold_all_texts_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    cluster.execute("CREATE DATABASE western ENCODING LATIN1 TEMPLATE template0")
    refused(tmp_path, cluster.url("western"), "has the encoding LATIN1", ErrorCode.CONFLICT)


def test_a_role_without_rights_is_explained(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    name = cluster.new_database().rpartition("%3D")[2]
    cluster.execute(f"GRANT USAGE ON SCHEMA {name} TO {LOCKED}")
    refused(
        tmp_path, cluster.url(user=LOCKED, options=f"-csearch_path%3D{name}"), "the owner of the database"
    )


def test_a_database_and_a_directory_of_different_stores_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    first, second = cluster.new_database(), cluster.new_database()
    one, two = bound_to(first, tmp_path / "one"), bound_to(second, tmp_path / "two")
    refused(one, second, "belongs to another directory", ErrorCode.CONFLICT)
    refused(tmp_path / "new", first, "belongs to another directory", ErrorCode.CONFLICT)
    with open_store(two) as store:
        store.artifacts.put(b"network", ".keras")
    refused(two, cluster.new_database(), "restore the database from its dump", ErrorCode.CONFLICT)
    with open_store(tmp_path / "sqlite"):
        pass
    refused(tmp_path / "sqlite", first, "has its database in mistify.db", ErrorCode.CONFLICT)


def test_a_database_may_get_another_address(cluster: Cluster, tmp_path: Path) -> None:
    address = cluster.new_database()
    store = bound_to(address, tmp_path)
    bound_to(f"{address}&application_name=other", store)
    assert "application_name=other" in (store / "database.json").read_text()
    with open_store(store) as opened:
        assert opened.remote


WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def cut_in_commit(cluster: Cluster, wait_for: Callable[..., None]) -> Callable[[Callable[[], object]], None]:
    """Return a function that runs a write whose connection is cut when it has been committed.

    PostgreSQL commits, and then waits for a replica, which does not exist, before it tells the client.
    """

    def waiting() -> bool:
        return bool(cluster.execute(WAITING))

    def configure(statement: str) -> None:
        cluster.execute(statement)
        cluster.execute("SELECT pg_reload_conf()")

    def cut() -> None:
        cluster.execute(f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) AS waiting")  # noqa: S608

    def run(write: Callable[[], object]) -> None:
        with ThreadPoolExecutor(1) as thread:

            def started(call: Callable[[], object]) -> Future[object]:
                """Start a call, and return it once it has ended or waits for the replica."""
                future = thread.submit(call)
                wait_for(lambda: future.done() or waiting())
                return future

            configure("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            try:
                while (
                    probe := started(lambda: cluster.execute("COMMENT ON SCHEMA public IS 'probe'"))
                ).done():
                    pass  # PostgreSQL has not read the setting yet
                cut()
                assert probe.exception() is not None
                wait_for(lambda: not waiting())
                written = started(write)
                cut()
            finally:
                configure("ALTER SYSTEM RESET synchronous_standby_names")
            written.result()

    return run


def test_a_commit_that_succeeded_without_an_answer_is_not_repeated(
    cluster: Cluster, tmp_path: Path, plan: BatchPlan, cut_in_commit: Callable[..., None]
) -> None:
    with open_store(bound_to(cluster.new_database(), tmp_path)) as store:
        store.jobs.create(Submission(Job("j", JobState.QUEUED, (GOAL,), 5), [plan], "[]", "key"))
        update = Advanced("a", ProgressUpdate("adapting", 1, 2))
        cut_in_commit(lambda: store.jobs.record("j", [update], 1.0, {}))
        assert len(store.jobs.events("j", 0, 9)) == 2


def test_other_writes_report_that_they_may_have_failed(
    cluster: Cluster, tmp_path: Path, plan: BatchPlan, cut_in_commit: Callable[..., None]
) -> None:
    with open_store(bound_to(cluster.new_database(), tmp_path)) as store:
        store.jobs.create(Submission(Job("j", JobState.DONE, (GOAL,), 5), [plan], "[]", "key"))
        with pytest.raises(MistifyError) as raised:
            cut_in_commit(lambda: store.jobs.hide("j", 7))
        assert raised.value.code is ErrorCode.UNAVAILABLE
        assert store.jobs.hidden(8) == ["j"]
