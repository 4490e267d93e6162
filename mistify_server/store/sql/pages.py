"""Pages of lists of jobs from their rows."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState
from mistify.jobs.part import GoalSelection, JobPage, JobPart, UnreadableJob
from mistify_server.store.sql.columns import is_one_of
from mistify_server.store.sql.reading import goalless_job, part_of
from mistify_server.store.sql.schema import GoalRow, JobRow


def page_with_goals(
    session: Session, jobs: Select[JobRow], limit: int, most_goals: int, selection: GoalSelection | None
) -> JobPage:
    """Return the first page of jobs with selected goals, or all goals.

    Args:
        jobs: The query for the jobs, newest first.
        most_goals: Maximum total number of goals; if the first job has more, it is the only one.
    """
    goals = select(func.count()).where(GoalRow.job_id == JobRow.id).scalar_subquery()
    results = session.execute(jobs.limit(limit + 1).add_columns(goals)).all()
    shown = [count if selection is None else min(count, selection.page_size) for _, count in results]
    fitting = sum(total <= most_goals for total in accumulate(shown))
    rows = [row for row, _ in results[: min(limit, max(fitting, 1))]]
    return _page(rows, lambda row: part_of(session, row, selection), more=len(results) > len(rows))


def page_without_goals(session: Session, jobs: Select[JobRow], limit: int) -> JobPage:
    """Return the first page of jobs without goals and sources.

    Args:
        jobs: The query for the jobs, newest first.
    """
    rows = session.scalars(jobs.limit(limit + 1)).all()
    ids = [row.id for row in rows[:limit]]
    query = select(GoalRow.job_id, GoalRow.state, func.count()).where(is_one_of(GoalRow.job_id, ids))
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for job_id, state, count in session.execute(query.group_by(GoalRow.job_id, GoalRow.state)):
        counts[job_id][state] = count

    def part(row: JobRow) -> JobPart:
        states = counts[row.id]
        total = states.total()
        return JobPart(goalless_job(row), total, states[GoalState.MET.value], "0" if total else "")

    return _page(rows[:limit], part, more=len(rows) > limit)


def _page(rows: Sequence[JobRow], part: Callable[[JobRow], JobPart], *, more: bool) -> JobPage:
    """Return the page of some rows.

    Args:
        part: Returns the job of a row.
        more: Whether there are older ones.
    """
    page = JobPage([], rows[-1].id if more else "")
    for row in rows:
        try:
            page.jobs.append(part(row))
        except MistifyError as error:
            if error.code is not ErrorCode.STORE_VERSION:
                raise
            page.unreadable.append(UnreadableJob(row.id, error.message))
    return page
