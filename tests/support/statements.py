"""Counts of the statements and commits of all databases."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event


@contextmanager
def counted_statements() -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()

    def count(_connection: Any, _cursor: Any, statement: str, *_others: object) -> None:
        counts[statement] += 1

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield counts
    finally:
        event.remove(Engine, "before_cursor_execute", count)


@contextmanager
def counted_commits() -> Iterator[list[object]]:
    """Count the commits of transactions that write: those that only read end with one as well."""
    commits: list[object] = []

    def count(connection: Connection) -> None:
        options = connection.get_execution_options()
        if options.get("writes") or options.get("begin") == "BEGIN IMMEDIATE":
            commits.append(connection)

    event.listen(Engine, "commit", count)
    try:
        yield commits
    finally:
        event.remove(Engine, "commit", count)
