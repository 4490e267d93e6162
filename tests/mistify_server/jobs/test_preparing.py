"""Submissions that arrive together are prepared together, with the same results as one by one."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Job, JobState
from mistify.quotas import Quota
from mistify_server.engines.local import LocalEngine
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import LOCAL, Scope
from mistify_server.jobs import preparing
from mistify_server.jobs.inspection_turns import InspectionTurns
from mistify_server.jobs.preparing import PreparedJob, PreparedJobs, Request
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.forecast.records import subject_of
from mistify_server.planning.inspector import BatchInspector
from mistify_server.planning.known_inspections import KnownInspections
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.planning.lookup.reading import read_and_resolve
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.store.changes import CheckpointSaved, JobChanged, Submission
from mistify_server.store.directory import Store
from mistify_server.tasks.results import AdaptResult, Inspection, Result
from tests.mistify_server.planning.forecast.batches import PROSPECTS, SOURCE
from tests.mistify_server.planning.forecast.histories import FEATURES, case, seen
from tests.support.callers import called_by
from tests.support.gates import held

INSPECTION = Inspection(costs=SOURCE, floor={"flops": 1e2}, estimates=PROSPECTS, metric=Metric.ACCURACY)
TOGETHER = 12


def text(flop: str, **changes: object) -> str:
    config = {
        "id": "goal",
        "model": "digits-resnet",
        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
        "algorithm": {"name": "morphnet"},
        "adaptation_goal": {"FLOP": flop},
    }
    return json.dumps([{**config, **changes}])


class Preparing:
    """The preparation of submissions to a store, whose only model and data have been inspected."""

    def __init__(self, store: Store, directory: Path) -> None:
        models = ModelRepository(store.models, store.artifacts)
        self.known = KnownInspections(store.inspections)
        self.resolver = BatchResolver(models, DataRoots.of([], directory), store.devices)
        # Its workers are not needed, and none is started.
        engine = LocalEngine(["no-such-worker"], directory)
        self.of = PreparedJobs(
            store, self.resolver, BatchInspector(engine, self.known, InspectionTurns(1).take), 1_000
        ).of

    async def inspect(self, config_text: str, inspection: Inspection = INSPECTION) -> None:
        async def made() -> Result:
            return inspection

        (batch,) = self.resolved(config_text)
        with called_by(LOCAL):
            assert await self.known.result(batch.inspect_task(), made) == inspection

    def resolved(self, config_text: str) -> list[ResolvedBatch]:
        return read_and_resolve(config_text, self.resolver, 10)[1]

    async def all(self, *requests: Request) -> list[Any]:
        return await asyncio.gather(*map(self.of, requests), return_exceptions=True)


@pytest.fixture
async def submissions(store: Store, tmp_path: Path) -> Preparing:
    prepared = Preparing(store, tmp_path)
    await prepared.inspect(text("0.5x"))
    return prepared


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


async def test_a_large_config_does_not_hold_up_small_ones(
    submissions: Preparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = json.dumps([json.loads(text(f"{0.2 + n / 1000}x", id=f"g{n}"))[0] for n in range(200)])

    class Reading:
        """Reads configs like the server; large ones wait for the gate."""

        def large(self, *arguments: Any) -> Any:
            return read_and_resolve(*arguments)

        def read(self, config_text: str, *others: Any) -> Any:
            return (self.large if config_text == large else read_and_resolve)(config_text, *others)

    reading = Reading()
    monkeypatch.setattr(preparing, "read_and_resolve", reading.read)
    with held(reading, "large") as gate:
        waits = asyncio.create_task(submissions.of(Request(large, "", "someone")))
        await asyncio.to_thread(gate.reached.wait)
        small = await asyncio.wait_for(submissions.of(Request(text("0.5x"), "", "someone")), 60)
        assert not waits.done()
        gate.opened.set()
        prepared = await waits
    assert isinstance(small, PreparedJob)
    assert isinstance(prepared, PreparedJob)
    assert (len(small.goals), len(prepared.goals)) == (1, 200)
