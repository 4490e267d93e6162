"""Database statements for jobs with many goals."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from sqlalchemy import event

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, GoalState, Job, JobState, PackageFile, ProgressUpdate
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.part import GoalSelection
from mistify_server.store.changes import Advanced, GoalChanged, GoalsFailed, JobChanged, Submission
from mistify_server.store.directory import Store
from mistify_server.store.plans import BatchPlan


def create(store: Store, plan: BatchPlan, job_id: str, goals: int) -> None:
    made = tuple(Goal(id=f"g{number}", batch=0, spec=PackageSpec({"flops": 1.0})) for number in range(goals))
    store.jobs.create(Submission(Job(job_id, JobState.QUEUED, made, 5), [plan], "[]", None))


def statements_of(store: Store, work: Callable[[], object]) -> list[str]:
    """Return the database statements of a call."""
    engine = store.jobs._database._engine  # type: ignore[attr-defined]
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    work()
    event.remove(engine, "before_cursor_execute", note)
    return seen


def test_the_progress_of_many_goals_needs_no_more_statements_than_that_of_one(
    store: Store, plan: BatchPlan
) -> None:
    create(store, plan, "j", 50)

    def advance(goals: Iterable[int]) -> list[str]:
        changes = [Advanced(f"g{number}", ProgressUpdate("adapting", 1, 2)) for number in goals]
        return statements_of(store, lambda: store.jobs.record("j", changes, len(changes), {}))

    assert len(advance(range(1))) == len(advance(range(50)))
    events = store.jobs.events("j", 0, 100)
    assert [event.sequence for event in events] == list(range(1, 53))
    assert [event.goal_id for event in events[2:]] == [f"g{number}" for number in range(50)]


def test_a_page_has_a_limited_number_of_jobs_and_goals(store: Store, plan: BatchPlan) -> None:
    for job_id, goals in (("a", 1), ("b", 4), ("c", 2), ("d", 1)):
        create(store, plan, job_id, goals)

    def page(limit: int, most_goals: int, before: str | None = None) -> tuple[str, str]:
        page = store.jobs.page(limit, most_goals, before)
        return "".join(part.job.id for part in page.jobs), page.next_page_token

    assert page(9, 8) == ("dcba", "")
    assert page(9, 3) == ("dc", "c")
    assert page(9, 3, "c") == ("b", "b")
    assert page(9, 3, "b") == ("a", "")
    assert page(9, 3, "a") == ("", "")
    assert page(1, 9) == ("d", "d")


def event_ends(store: Store, job_id: str, after: int) -> list[tuple[str | None, object]]:
    return [(event.goal_id, event.event) for event in store.jobs.events(job_id, after, 99)]


def test_a_job_ends_with_all_its_goals_in_a_few_statements(store: Store, plan: BatchPlan) -> None:
    create(store, plan, "j", 30)
    create(store, plan, "other", 2)
    met, running, *_ = store.jobs.job("j").goals
    changes = [GoalChanged(replace(met, state=GoalState.MET, accuracy=0.5))]
    changes += [GoalChanged(replace(running, state=GoalState.RUNNING))]
    store.jobs.record("j", changes, 1.0, {})
    seen = statements_of(store, lambda: store.jobs.end("j", JobChanged(JobState.CANCELLED, "asked")))
    assert len(seen) < 12
    job = store.jobs.job("j")
    assert (job.state, job.reason) == (JobState.CANCELLED, "asked")
    assert job.goals[0] == replace(met, state=GoalState.MET, accuracy=0.5)
    assert {(goal.state, goal.reason) for goal in job.goals[1:]} == {(GoalState.CANCELLED, "asked")}
    assert event_ends(store, "j", 3) == [
        *((f"g{number}", GoalState.CANCELLED) for number in range(1, 30)),
        (None, JobState.CANCELLED),
    ]
    assert store.jobs.goal_states("other") == {GoalState.WAITING: 2}
    store.jobs.end("j", JobChanged(JobState.FAILED))
    assert (store.jobs.job("j"), len(store.jobs.events("j", 0, 99))) == (job, 33)


def test_goals_fail_together(store: Store, plan: BatchPlan) -> None:
    create(store, plan, "j", 4)
    store.jobs.record("j", [GoalsFailed(["g2", "g0"], "it is so"), GoalsFailed([], "")], 1.0, {})
    goals = store.jobs.job("j").goals
    assert [(goal.state, goal.reason) for goal in goals] == [
        (GoalState.FAILED, "it is so"),
        (GoalState.WAITING, ""),
        (GoalState.FAILED, "it is so"),
        (GoalState.WAITING, ""),
    ]
    assert event_ends(store, "j", 1) == [("g2", GoalState.FAILED), ("g0", GoalState.FAILED)]


def test_a_job_is_read_in_pages_of_goals(store: Store, plan: BatchPlan) -> None:
    create(store, plan, "j", 7)
    whole = store.jobs.job("j")
    met = replace(whole.goals[4], state=GoalState.MET, files=(PackageFile("m", 1, "x"),))
    store.jobs.record("j", [GoalChanged(met)], 1.0, {})
    whole = store.jobs.job("j")
    goals, token, pages = [], "", 0
    while token or not pages:
        part = store.jobs.part("j", GoalSelection(page_size=3, page_token=token))
        assert (part.goal_count, part.goals_met, replace(part.job, goals=whole.goals)) == (7, 1, whole)
        goals += part.job.goals
        token, pages = part.next_page_token, pages + 1
    assert (tuple(goals), pages) == (whole.goals, 3)
    one = store.jobs.part("j", GoalSelection(goal_id="g4"))
    assert (one.job.goals, one.next_page_token) == ((met,), "")
    assert store.jobs.part("j", GoalSelection()).job.goals == ()
    with pytest.raises(MistifyError, match='no goal "g9"') as caught:
        store.jobs.part("j", GoalSelection(goal_id="g9"))
    assert caught.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("token", ["-1", "x", "²", "٣", "9" * 20, "9" * 5_000])
def test_an_invalid_page_token_is_refused(store: Store, plan: BatchPlan, token: str) -> None:
    create(store, plan, "j", 1)
    with pytest.raises(MistifyError, match=f"got the page token '{token[:20]}") as caught:
        store.jobs.part("j", GoalSelection(page_size=3, page_token=token))
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_page_can_contain_many_jobs_without_goals(store: Store, plan: BatchPlan) -> None:
    for job_id in "abc":
        create(store, plan, job_id, 5)
    page = store.jobs.page(9, 5, selection=GoalSelection())
    assert [(part.job.id, part.goal_count, part.job.goals) for part in page.jobs] == [
        (job_id, 5, ()) for job_id in "cba"
    ]
    assert not page.next_page_token


def test_more_jobs_on_a_page_need_no_more_statements(store: Store, plan: BatchPlan) -> None:
    for number in range(20):
        create(store, plan, f"j{number}", number % 3)
    met = replace(store.jobs.job("j19").goals[0], state=GoalState.MET)
    store.jobs.record("j19", [GoalChanged(met)], 2.0, {})

    def listed(limit: int) -> list[str]:
        return statements_of(store, lambda: store.jobs.page(limit, 99, selection=GoalSelection()))

    assert len(listed(1)) == len(listed(20))
    page = store.jobs.page(19, 99, selection=GoalSelection())
    parts = page.jobs
    assert [(part.job.id, part.goal_count) for part in parts] == [
        (f"j{number}", number % 3) for number in reversed(range(1, 20))
    ]
    assert page.next_page_token == parts[-1].job.id
    assert (parts[0].goals_met, parts[0].job.seconds, parts[1].goals_met) == (1, 2.0, 0)


def test_files_in_use_are_known_while_rows_are_added_and_changed(store: Store, plan: BatchPlan) -> None:
    for job_id in "ab":
        create(store, plan, job_id, 1)
    before = store.jobs.referenced_digests()
    kept, removed = "1" * 64, "2" * 64
    for job_id, digest in (("a", kept), ("b", removed)):
        (goal,) = store.jobs.job(job_id).goals
        changed = replace(goal, state=GoalState.MET, files=(PackageFile("m", 1, digest),))
        store.jobs.record(job_id, [GoalChanged(changed), JobChanged(JobState.DONE)], 1.0, {})
    assert store.jobs.referenced_digests() == before | {kept, removed}
    store.jobs.remove("b")
    assert store.jobs.referenced_digests() == before | {kept}
