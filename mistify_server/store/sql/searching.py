"""Conditions of searches for jobs."""

from collections.abc import Iterator

from sqlalchemy import ColumnElement, exists, func, or_, select

from mistify_server.store.jobs import JobSearch
from mistify_server.store.sql.schema import JobRow


def found_by(search: JobSearch) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of a search."""
    yield JobRow.removed_unix_ms.is_not(None) if search.removed else JobRow.removed_unix_ms.is_(None)
    tag = func.json_each(JobRow.tags).table_valued("value").c.value
    if search.text:
        columns = JobRow.id, JobRow.name, JobRow.submitted_by
        text = search.text.casefold()
        contains = [func.casefold(column).contains(text, autoescape=True) for column in columns]
        tagged = select(tag).where(func.casefold(tag).contains(text, autoescape=True))
        yield or_(*contains, exists(tagged))
    for wanted in search.tags:
        yield exists(select(tag).where(func.casefold(tag) == wanted.casefold()))
