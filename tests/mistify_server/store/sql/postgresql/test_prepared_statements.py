"""Connections keep the statements that they have prepared, from one call to the next."""

from pathlib import Path

from sqlalchemy import text

from mistify_server.store.directory import open_store
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.postgresql.address import DatabaseAddress
from mistify_server.store.sql.postgresql.backend import PostgresBackend
from tests.support.postgresql import Cluster, bound_to


def test_statements_of_all_kinds_of_calls_stay_prepared(cluster: Cluster, tmp_path: Path) -> None:
    address, store = cluster.new_database(), tmp_path / "store"
    with open_store(bound_to(address, store)):
        pass
    database = Database.open(PostgresBackend(DatabaseAddress.of(address), store), busy_seconds=60)
    for number in range(10):
        with database.read_rows() as connection:
            connection.execute(text("SELECT 'rows', :number"), {"number": number})
        with database.read() as session:
            session.execute(text("SELECT 'session', :number"), {"number": number})
        with database.write() as session:
            session.execute(text("SELECT 'written', :number"), {"number": number})
    with database.read() as session:  # by the same connection: there was never another one in use
        prepared = session.scalars(text("SELECT statement FROM pg_prepared_statements")).all()
    database.close()
    for kind in ("rows", "session", "written"):
        assert any(f"'{kind}'" in statement for statement in prepared), prepared
