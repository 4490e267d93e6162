#!/usr/bin/env bash
# psycopg deallocates all prepared statements of a connection at each rollback, so with SQLAlchemy reads never use one.
#
# Expected: psycopg prepares a statement once it has been executed five times on a connection, which saves PostgreSQL from
# parsing and planning it again. PostgreSQL itself keeps prepared statements over a rollback.
# Observed: psycopg 3.3.9 deallocates what it has prepared on a connection after a rollback, and counts from zero. A session
# of SQLAlchemy 2.1.9 that only reads ends with a rollback, and so does a connection that returns to the pool without a
# commit: 100 equal reads leave no prepared statement, and a single rollback discards also what the writers that share
# the pool had prepared. 100 reads that end with a commit, or with AUTOCOMMIT, leave one.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet 'psycopg[binary]==3.3.9' SQLAlchemy==2.1.9 pgserver==0.1.4
cd "$directory"
"$directory/venv/bin/python" -W ignore - <<'PYTHON'
import pgserver
import psycopg
import sqlalchemy
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

server = pgserver.get_server("data", cleanup_mode="delete")
address = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
engine = create_engine(address, pool_size=1, max_overflow=0)
print("psycopg", psycopg.__version__, "SQLAlchemy", sqlalchemy.__version__)

READ = text("SELECT count(*) FROM pg_class WHERE relname = :name")
PREPARED = text("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%pg_class%'")


def read(times, commits=False):
    for _ in range(times):
        with Session(engine) as session:
            session.scalar(READ, {"name": "x"})
            if commits:
                session.commit()


def prepared(what):
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        count = connection.scalar(PREPARED)
    print(f"{what}: {count} prepared")
    return count


read(100)
assert prepared("100 reads") == 0
read(100, commits=True)
assert prepared("100 reads that end with a commit") == 1
read(1)
assert prepared("one more read") == 0
for _ in range(100):
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.scalar(READ, {"name": "x"})
assert prepared("100 reads with AUTOCOMMIT") == 1

engine.dispose()

# PostgreSQL itself keeps them: the same by its protocol, without what psycopg adds.
with psycopg.connect(server.get_uri(), autocommit=True) as connection:
    for command in (b"PREPARE kept AS SELECT 1", b"BEGIN", b"SELECT 1", b"ROLLBACK"):
        connection.pgconn.exec_(command)
    rows = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
    print("after PostgreSQL's own rollback:", rows)
    assert rows == [("kept",)]
server.cleanup()
PYTHON
