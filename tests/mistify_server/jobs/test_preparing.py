"""Submissions that arrive together are prepared together, with the same results as one by one."""

from collections import Counter
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Job, JobState
from mistify.quotas import Quota
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.jobs.preparing import PreparedJob, Request
from mistify_server.planning.forecast.records import subject_of
from mistify_server.store.changes import CheckpointSaved, JobChanged, Submission
from mistify_server.store.directory import Store
from mistify_server.tasks.results import AdaptResult
from tests.mistify_server.jobs.preparation import INSPECTION, Preparing, text
from tests.mistify_server.planning.forecast.histories import FEATURES, case, seen
from tests.support.statements import counted_statements

TOGETHER = 12


@pytest.fixture
async def submissions(store: Store, tmp_path: Path) -> Preparing:
    prepared = Preparing(store, tmp_path)
    await prepared.inspect(text("0.5x"))
    return prepared


async def test_together_they_are_prepared_as_one_by_one(submissions: Preparing) -> None:
    requests = [Request(text(f"0.{number}x"), f"key-{number}", "someone") for number in range(2, 9)]
    together = await submissions.all(*requests)
    assert together == [await submissions.of(each) for each in requests]
    assert [job.goals[0].spec.budget["flops"] for job in together] == [1e3 * n for n in range(2, 9)]
    assert [job.plans[0].nodes[0].budget["flops"] for job in together] == [1e3 * n for n in range(2, 9)]


async def test_together_each_has_the_inspection_of_its_own_source(submissions: Preparing) -> None:
    data = {"train": "builtin:digits-train", "test": "builtin:digits-test", "validation": 0.3}
    others: list[dict[str, object]] = [
        {},
        {"dataset": data},
        {"algorithm": {"name": "chamnet"}},
        {"algorithm": {"name": "morphnet", "config": {"source_steps": 7}}},
        {"threads": 2},
        {"adaptation_goal": {"FLOP": "0.5x", "accuracy": 0.5}},
    ]
    for number, changes in enumerate(others, 1):
        await submissions.inspect(
            text("0.5x", **changes), INSPECTION.model_copy(update={"costs": {"flops": 1e4 * number}})
        )
    requests = [Request(text("0.5x", **changes), "", "someone") for changes in others]
    together = await submissions.all(*requests, *requests)
    assert [job.goals[0].spec.budget["flops"] for job in together] == 2 * [
        5e3 * number for number in range(1, 7)
    ]


async def test_together_they_read_the_store_as_often_as_one_alone(submissions: Preparing) -> None:
    async def statements(*requests: Request) -> Counter[str]:
        with counted_statements() as counts:
            assert all(isinstance(each, PreparedJob) for each in await submissions.all(*requests))
        return counts

    many = [Request(text(f"0.{number}x"), f"key-{number}", "someone") for number in range(2, 2 + TOGETHER)]
    await statements(many[0])  # which reads the limits of its caller, until the next commit
    one, together = await statements(many[0]), await statements(*many)
    assert one.total() > 0
    assert together.total() == one.total()


async def test_mistakes_concern_only_those_who_made_them(submissions: Preparing, store: Store) -> None:
    prepared = await submissions.of(Request(text("0.5x"), "", "someone"))
    assert isinstance(prepared, PreparedJob)
    jobs = [
        Job(name, JobState.QUEUED, tuple(prepared.goals), 1, submitted_by="limited")
        for name in ("earlier", "runs")
    ]
    for job, key in zip(jobs, ("known", None), strict=True):
        store.jobs.create(Submission(job, prepared.plans, text("0.5x"), key))
    store.jobs.end("earlier", JobChanged(JobState.CANCELLED))
    store.jobs.hide("earlier", 5)
    create_token(store.tokens, "limited", [Scope.SUBMIT], limits={"jobs": 1})
    outcomes = await submissions.all(
        Request(text("0.4x"), "", "someone"),
        Request("no JSON", "", "someone"),
        Request(text("0.5x"), "known", "limited"),
        Request(text("0.4x"), "known", "someone"),
        Request(text("0.4x", model="unknown"), "", "someone"),
        Request(text("0.001x"), "", "someone"),
        Request(text("0.4x"), "", "limited"),
        Request(text("0.4x"), "\ud800", "someone"),
        Request(text("0.4x"), "another", "someone"),
    )
    codes = [each.code if isinstance(each, MistifyError) else None for each in outcomes]
    invalid, no_model, conflict = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_MODEL, ErrorCode.CONFLICT
    assert codes == [None, invalid, None, conflict, no_model, invalid, ErrorCode.QUOTA_EXCEEDED, None, None]
    assert isinstance(outcomes[7], UnicodeEncodeError)
    assert [place.place for place in outcomes[5].problems] == ["[0].adaptation_goal.FLOP"]
    assert outcomes[2] == store.jobs.job("earlier")
    assert outcomes[2].removed_unix_ms is None
    assert outcomes[0] == outcomes[8]


async def test_nothing_is_remembered_for_later_ones(submissions: Preparing, store: Store) -> None:
    """A caller with a new limit, or a model with a new content, is not that of a moment ago."""
    request = Request(text("0.5x"), "key", "someone")
    prepared = await submissions.of(request)
    assert isinstance(prepared, PreparedJob)
    create_token(store.tokens, "someone", [Scope.SUBMIT], limits={"jobs": 1})
    job = Job("running", JobState.QUEUED, tuple(prepared.goals), 1, submitted_by="someone")
    store.jobs.create(Submission(job, prepared.plans, text("0.6x"), None))
    with pytest.raises(MistifyError) as error:
        await submissions.of(request)
    assert error.value.code is ErrorCode.QUOTA_EXCEEDED
    assert store.tokens.limits("someone") == Quota(jobs=1)


async def test_later_ones_learn_from_edges_that_were_adapted_since(
    submissions: Preparing, store: Store
) -> None:
    async def seconds(key: str) -> float:
        prepared = await submissions.of(Request(text("0.5x"), key, "someone"))
        assert isinstance(prepared, PreparedJob)
        return prepared.plans[0].nodes[0].seconds

    prepared = await submissions.of(Request(text("0.5x"), "", "someone"))
    assert isinstance(prepared, PreparedJob)
    (plan,), before = prepared.plans, await seconds("before")
    store.jobs.create(
        Submission(Job("earlier", JobState.RUNNING, tuple(prepared.goals), 1), [plan], "[]", None)
    )
    edge = seen(case(subject=subject_of(FEATURES, plan.recipe.data)), lost=0.1, seconds=1e6)
    adapted = AdaptResult(checkpoint="c", costs={}, accuracy=0.8, met=True, reason="", steps=3, spent={})
    store.jobs.record("earlier", [CheckpointSaved(0, 0, adapted, edge)], 0.0, {})
    assert await seconds("after") > 100 * before
