"""Addresses of databases, which never contain a password."""

import pytest

from mistify.parsing.validation import InvalidValue
from mistify_server.store.sql.postgresql.address import DatabaseAddress

SECRET = "s3cret"  # noqa: S105


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://mistify@db.example.org/jobs", "postgresql://mistify@db.example.org/jobs"),
        ("postgres://mistify@db.example.org:5433/jobs", "postgresql://mistify@db.example.org:5433/jobs"),
        ("postgresql:///jobs?sslmode=verify-full", "postgresql:///jobs?sslmode=verify-full"),
        ("postgresql://u@/jobs?host=/run/postgresql", "postgresql://u@/jobs?host=/run/postgresql"),
        ("postgresql:///jobs?options=-c%20jit%3Doff", "postgresql:///jobs?options=-c%20jit%3Doff"),
    ],
)
def test_an_address_is_shown_as_libpq_reads_it(text: str, shown: str) -> None:
    assert str(DatabaseAddress.of(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://mistify:{SECRET}@db/jobs",
        f"postgres://:{SECRET}@/jobs",
        f"postgresql://mistify@db/jobs?password={SECRET}",
        f"postgresql://mistify@db/jobs?sslmode=require&sslpassword={SECRET}&connect_timeout=2",
    ],
)
def test_a_password_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"without a password.*pgpass") as raised:
        DatabaseAddress.of(text)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "jobs",
        "sqlite:///jobs.db",
        f"mysql://u:{SECRET}@db/jobs",
        f"postgresql://u:{SECRET}@db:port/jobs",
        f"postgresql://u/v:{SECRET}@db/jobs",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="expected an address such as postgresql://") as raised:
        DatabaseAddress.of(text)
    assert SECRET not in str(raised.value)
