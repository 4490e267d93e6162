"""What jobs with many goals take."""

from collections.abc import Iterable

from sqlalchemy import event

from mistify.jobs.job import Goal, Job, JobState, ProgressUpdate
from mistify_server.store.changes import Advanced, Change, Submission
from mistify_server.store.directory import Store
from mistify_server.store.plans import BatchPlan


def create(store: Store, plan: BatchPlan, job_id: str, goals: int) -> None:
    made = tuple(Goal(id=f"g{number}", batch=0, budget={"flops": 1.0}) for number in range(goals))
    store.jobs.create(Submission(Job(job_id, JobState.QUEUED, made, 5), [plan], "[]", None))


def statements_of(store: Store, changes: list[Change]) -> list[str]:
    """What a record of changes asks of the database."""
    engine = store.jobs._database._engine  # type: ignore[attr-defined]
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    store.jobs.record("j", changes, float(len(changes)), {})
    event.remove(engine, "before_cursor_execute", note)
    return seen


def test_the_progress_of_many_goals_takes_no_more_statements_than_that_of_one(
    store: Store, plan: BatchPlan
) -> None:
    create(store, plan, "j", 50)

    def advance(goals: Iterable[int]) -> list[str]:
        return statements_of(
            store, [Advanced(f"g{number}", ProgressUpdate("adapting", 1, 2)) for number in goals]
        )

    assert len(advance(range(1))) == len(advance(range(50)))
    events = store.jobs.events("j", 0, 100)
    assert [event.sequence for event in events] == list(range(1, 53))
    assert [event.goal_id for event in events[2:]] == [f"g{number}" for number in range(50)]


def test_a_page_has_so_many_jobs_and_goals(store: Store, plan: BatchPlan) -> None:
    for job_id, goals in (("a", 1), ("b", 4), ("c", 2), ("d", 1)):
        create(store, plan, job_id, goals)

    def page(limit: int, most_goals: int, before: str | None = None) -> tuple[str, bool]:
        jobs, more = store.jobs.page(limit, most_goals, before)
        return "".join(job.id for job in jobs), more

    assert page(9, 8) == ("dcba", False)
    assert page(9, 3) == ("dc", True)
    assert page(9, 3, "c") == ("b", True)
    assert page(9, 3, "b") == ("a", False)
    assert page(9, 3, "a") == ("", False)
    assert page(1, 9) == ("d", True)
