"""Poolers between a server and PostgreSQL, and connections that are used up."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.directory import locked_backend, open_store
from tests.support.pgbouncer import running_pooler
from tests.support.postgresql import Cluster, bound_to

#: How PgBouncer chooses one of several free connections to PostgreSQL: the last or the first that was used.
ORDERS = ["0", "1"]


@pytest.fixture
def database(cluster: Cluster) -> Iterator[str]:
    name = "pooled"
    cluster.execute(f"CREATE DATABASE {name}")
    yield name
    cluster.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def pooled(
    cluster: Cluster, database: str, wait_for: Callable[..., None], mode: str, **settings: str
) -> Iterator[str]:
    """Yield the address of a database behind PgBouncer."""
    with running_pooler(cluster, mode, **settings) as host:
        wait_for((Path(host) / ".s.PGSQL.5432").exists)
        yield cluster.url(database).replace(str(cluster.directory), host)


def check_refused(directory: Path, address: str) -> None:
    with (
        pytest.raises(MistifyError, match="pool_mode = session") as raised,
        locked_backend(directory, address),
    ):
        pass
    assert raised.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_loses_locks_is_refused_whichever_connections_it_has(
    cluster: Cluster, database: str, tmp_path: Path, wait_for: Callable[..., None], *, mode: str, order: str
) -> None:
    import psycopg

    with pooled(cluster, database, wait_for, mode, server_round_robin=order) as address:
        for connections in range(3):
            check_refused(tmp_path, address)
            others = [psycopg.connect(address, autocommit=True) for _ in range(connections + 2)]
            for other in others:
                if mode == "transaction":
                    other.execute("BEGIN")  # takes a connection of its own
                other.execute("SELECT 1")
            for other in others:
                other.close()
            wait_for(lambda: True)


def test_a_pooler_in_session_mode_is_used(
    cluster: Cluster, database: str, tmp_path: Path, wait_for: Callable[..., None]
) -> None:
    with pooled(cluster, database, wait_for, "session") as address:
        store = bound_to(address, tmp_path)
        with open_store(store) as opened:
            assert opened.tokens.all() == []


def test_a_pooler_that_changes_its_mode_later_is_noticed(
    cluster: Cluster, tmp_path: Path, wait_for: Callable[..., None], *, monkeypatch: Any, caplog: Any
) -> None:
    module = "mistify_server.store.sql.postgresql.server_lock"
    monkeypatch.setattr(f"{module}._CHECK_SECONDS", 0.1)
    with locked_backend(tmp_path, cluster.new_database()):
        processes = count()
        monkeypatch.setattr(f"{module}._process_of", lambda _: next(processes))
        wait_for(lambda: "behind a pooler" in caplog.text)


def test_a_limit_of_connections_is_explained(cluster: Cluster, tmp_path: Path) -> None:
    cluster.execute("CREATE ROLE nobody LOGIN CONNECTION LIMIT 0")
    with (
        pytest.raises(MistifyError, match="raise max_connections, or the limit of the role"),
        locked_backend(tmp_path, cluster.url(user="nobody")),
    ):
        pass
