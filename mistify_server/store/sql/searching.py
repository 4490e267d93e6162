"""Conditions of searches for jobs."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, exists, or_, select

from mistify_server.store.jobs import JobSearch
from mistify_server.store.sql.columns import Casefolded, JsonElements, Position
from mistify_server.store.sql.schema import JobRow


def search_conditions(search: JobSearch) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of a search."""
    yield JobRow.removed_unix_ms.is_not(None) if search.removed else JobRow.removed_unix_ms.is_(None)
    tag = JsonElements(JobRow.tags).table_valued("value").c.value
    if search.text:
        columns = JobRow.id, JobRow.name, JobRow.submitted_by
        tagged = exists(select(tag).where(_contains(tag, search.text)))
        yield or_(*(_contains(column, search.text) for column in columns), tagged)
    for wanted in search.tags:
        yield exists(select(tag).where(Casefolded(tag) == Casefolded(wanted)))


def _contains(column: Any, part: str) -> ColumnElement[bool]:
    """Return the condition that a text contains another one, in any case."""
    return Position(Casefolded(column), Casefolded(part)) > 0
