"""One server at a time uses a database, also after its connections were cut."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.directory import Store, locked_backend, open_store, open_store_as_server
from mistify_server.store.models import NamedModel
from mistify_server.store.removal import remove_jobs
from mistify_server.store.sql.postgresql.server_lock import ServerLock
from tests.support.postgresql import Cluster

HOLDERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"


@contextmanager
def server(directory: Path, address: str | None = None) -> Iterator[Store]:
    with (
        locked_backend(directory, address) as backend,
        open_store_as_server(directory, 1.0, backend) as store,
    ):
        yield store


@contextmanager
def impatient() -> Iterator[None]:
    """Do not wait for a lock. Elsewhere, PostgreSQL may release that of an earlier server late."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mistify_server.store.sql.postgresql.server_lock._PATIENCE_MS", 100)
        yield


def check_refused(directory: Path, address: str) -> None:
    taken = f"in use by another server (the main one is process {os.getpid()} on "
    with impatient(), pytest.raises(MistifyError) as raised, server(directory, address):
        pass
    assert (raised.value.code, taken in str(raised.value)) == (ErrorCode.UNAVAILABLE, True), raised.value


@pytest.fixture(autouse=True)
def _frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mistify_server.store.sql.postgresql.server_lock._CHECK_SECONDS", 0.1)


@pytest.fixture
def address(cluster: Cluster) -> str:
    return cluster.new_database()


def test_a_second_server_is_refused_in_any_directory(address: str, tmp_path: Path) -> None:
    with server(tmp_path / "one", address):
        for directory in ("one", "two"):
            check_refused(tmp_path / directory, address)
        with open_store(tmp_path / "one") as store:  # commands can be used meanwhile
            store.models.add(NamedModel("net", "artifact", "net.keras"))
        with impatient(), pytest.raises(MistifyError, match="in use by another server"):
            remove_jobs(tmp_path / "one", [])
    with server(tmp_path / "one") as store:
        assert [model.name for model in store.models.all()] == ["net"]


def test_a_lock_whose_connection_was_cut_is_taken_again(
    cluster: Cluster, address: str, tmp_path: Path, wait_for: Callable[..., None]
) -> None:
    with server(tmp_path / "one", address) as store:
        before = cluster.execute(HOLDERS)
        others = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
        cluster.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")  # noqa: S608
        wait_for(lambda: _usable(store) and cluster.execute(HOLDERS) not in ([], before))
        store.models.add(NamedModel("net", "artifact", "net.keras"))
        assert [model.name for model in store.models.all()] == ["net"]
        check_refused(tmp_path / "two", address)


def test_a_server_that_was_replaced_cannot_write(cluster: Cluster, address: str, tmp_path: Path) -> None:
    name = address.rpartition("%3D")[2]
    with server(tmp_path, address) as store:
        cluster.execute(f"UPDATE {name}.meta SET value = 'another' WHERE key = 'server'")  # noqa: S608
        with pytest.raises(MistifyError, match="another server has taken over") as raised:
            store.models.add(NamedModel("net", "artifact", "net.keras"))
        assert raised.value.code is ErrorCode.UNAVAILABLE
        with open_store(tmp_path) as other:
            assert other.models.all() == []


def test_a_connection_that_postgresql_still_has_is_ended(
    cluster: Cluster, address: str, tmp_path: Path, wait_for: Callable[..., None]
) -> None:
    """PostgreSQL does not notice at once that a network was cut."""
    with locked_backend(tmp_path, address) as backend, open_store_as_server(tmp_path, 1.0, backend) as store:
        lock = backend._lock  # type: ignore[attr-defined]
        with lock._using:  # not in the middle of a check
            before, cut = cluster.execute(HOLDERS), lock._connection
            lock._connection = None
        lock.report_lost("the network was cut")
        wait_for(lambda: _usable(store) and cluster.execute(HOLDERS) not in ([], before))
        assert set(before).isdisjoint(cluster.execute(HOLDERS))
        del cut


def test_a_connection_that_is_lost_in_the_middle_of_a_check_is_made_again(
    cluster: Cluster, address: str, tmp_path: Path, wait_for: Callable[..., None], *, monkeypatch: Any
) -> None:
    """The check has two statements."""
    with server(tmp_path, address) as store:
        store.models.add(NamedModel("net", "artifact", "net.keras"))  # from then on, the owner is checked
        (before,) = cluster.execute(HOLDERS)[0]
        check, cut = ServerLock.check_owner, []

        def cutting(lock: ServerLock, connection: Any) -> None:
            if not cut:
                cluster.execute(f"SELECT pg_terminate_backend({before})")
                wait_for(lambda: cluster.execute(HOLDERS) == [])
                cut.append(before)
            check(lock, connection)

        monkeypatch.setattr(ServerLock, "check_owner", cutting)
        wait_for(lambda: bool(cut) and cluster.execute(HOLDERS) not in ([], [(before,)]) and _usable(store))


@pytest.mark.parametrize(
    ("off", "warning"), [(3600, "3600 seconds ahead of"), (-60, "60 seconds behind"), (0, "")]
)
def test_a_clock_that_differs_from_the_databases_is_warned_of(
    address: str, tmp_path: Path, off: int, warning: str, *, monkeypatch: Any, caplog: Any
) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + off)
    with locked_backend(tmp_path, address):
        assert warning in caplog.text
        assert ("the clock of this machine" in caplog.text) == bool(off)


def test_a_lock_is_checked_again_after_an_internal_error(
    cluster: Cluster, address: str, tmp_path: Path, wait_for: Callable[..., None], *, monkeypatch: Any
) -> None:
    """Until then, nobody knows whether this server still has it."""
    with server(tmp_path, address) as store:
        before = cluster.execute(HOLDERS)

        def failing(lock: ServerLock) -> bool:
            raise ValueError(lock)

        with monkeypatch.context() as patched:
            patched.setattr(ServerLock, "_alive", failing)
            wait_for(lambda: not _usable(store))
        wait_for(lambda: _usable(store) and cluster.execute(HOLDERS) not in ([], before))


def _usable(store: Store) -> bool:
    try:
        store.models.all()
    except MistifyError:
        return False
    return True
