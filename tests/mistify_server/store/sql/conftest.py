"""Stores with each kind of database, for tests of what both have in common."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mistify_server.store.directory import Store, open_store
from tests.support.postgresql import bound_to


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the directory of a new store; with PostgreSQL, it names a new database."""
    path = tmp_path / "store"
    return (
        path
        if request.param == "SQLite"
        else bound_to(request.getfixturevalue("cluster").new_database(), path)
    )


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    with open_store(directory) as opened:
        yield opened
