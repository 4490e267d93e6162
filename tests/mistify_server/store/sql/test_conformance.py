"""What stores in both kinds of databases have in common, beyond jobs."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path

import pytest

from executors.contract.profile import AlgorithmProfile
from mistify.errors import ErrorCode, MistifyError
from mistify.fleet import DeviceReport, DeviceStatus
from mistify.jobs.job import Goal, Job, JobState, ProgressUpdate
from mistify.jobs.network_graph import INPUT, GraphNode, NetworkGraph
from mistify.jobs.package_spec import PackageSpec
from mistify_server.identity.callers import DEFAULT_TENANT, Scope
from mistify_server.identity.tokens import AccessToken
from mistify_server.store.changes import Advanced, GraphSaved, JobChanged, Submission
from mistify_server.store.directory import Store, open_store
from mistify_server.store.jobs import JobChange, JobSearch
from mistify_server.store.models import NamedModel
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.estimates import EdgeEstimates, NetworkFeatures
from tests.support.stored import jobs_in

GOAL = Goal(id="a", batch=0, spec=PackageSpec({"flops": 1.0}))
MOMENT = datetime(2026, 11, 29, 12, tzinfo=UTC)


def create(store: Store, plan: BatchPlan, job_id: str, key: str | None = None, **values: object) -> Job:
    job = Job(job_id, JobState.QUEUED, (GOAL,), created_unix_ms=1_790_000_000_000, **values)  # type: ignore[arg-type]
    return store.jobs.create(Submission(job, [plan], "[]", key))


@pytest.mark.parametrize(
    ("search", "found"),
    [
        (JobSearch("STRASSE"), "s"),
        (JobSearch("éTÉ"), "e"),
        (JobSearch("50%"), "p"),
        (JobSearch("a_b"), "u"),
        (JobSearch("anna"), "s"),
        (JobSearch("Vision"), "eu"),
        (JobSearch(tags=("TEAM=VISION",)), "eu"),
        (JobSearch(tags=("team=vision", "urgent")), "u"),
        (JobSearch(tags=("team",)), ""),
        (JobSearch(removed=True), "r"),
        (JobSearch("axb"), ""),
    ],
)
def test_jobs_are_found_by_text_and_tags_in_any_case(
    store: Store, plan: BatchPlan, search: JobSearch, found: str
) -> None:
    create(store, plan, "s", name="Strasse", submitted_by="Anna")
    create(store, plan, "e", name="Été", tags=("Team=Vision",))
    create(store, plan, "p", name="50% less", tags=("other",))
    create(store, plan, "u", name="a_b", tags=("urgent", "team=vision"))
    create(store, plan, "r", name="removed")
    store.jobs.record("r", [JobChanged(JobState.DONE)], 0.0, {})
    store.jobs.hide("r", 1_790_000_000_000)
    assert "".join(sorted(part.job.id for part in store.jobs.page(9, 9, search=search).jobs)) == found


def test_removals_can_be_undone(store: Store, plan: BatchPlan) -> None:
    create(store, plan, "j")
    store.jobs.record("j", [JobChanged(JobState.DONE)], 0.0, {})
    store.jobs.hide("j", 1_790_000_000_001)
    assert (store.jobs.hidden(1_790_000_000_001), store.jobs.hidden(1_790_000_000_002)) == ([], ["j"])
    store.jobs.restore("j")
    store.jobs.change("j", JobChange(name="new", tags=("b", "a")))
    (job,) = jobs_in(store)
    assert (job.name, job.tags, job.removed_unix_ms) == ("new", ("b", "a"), None)
    store.jobs.remove("j")
    assert jobs_in(store) == []


def test_tokens_are_added_found_and_revoked(store: Store) -> None:
    token = AccessToken(
        "ci", DEFAULT_TENANT, "a" * 64, frozenset({Scope.READ, Scope.SUBMIT}), 1_790_000_000_000, None
    )
    store.tokens.add(token)
    with pytest.raises(MistifyError) as raised:
        store.tokens.add(replace(token, sha256="b" * 64))
    assert raised.value.code is ErrorCode.CONFLICT
    other = replace(token, name="device", sha256="c" * 64)
    store.tokens.add(other)
    assert store.tokens.find(["a" * 64, "b" * 64]) == {"a" * 64: token}
    assert store.tokens.find(["c" * 64, "a" * 64]) == {"a" * 64: token, "c" * 64: other}
    assert store.tokens.all() == [token, other]
    store.tokens.revoke("device")
    store.tokens.revoke("ci")
    assert store.tokens.find(["a" * 64]) == store.tokens.find([]) == {}
    assert store.tokens.all() == []


def test_names_are_in_the_order_of_their_characters(store: Store) -> None:
    for name in ("é", "B", "a", "_"):
        store.tokens.add(AccessToken(name, DEFAULT_TENANT, name, frozenset({Scope.READ}), 1, None))
        store.models.add(NamedModel(name, "artifact", "file.h5"))
    assert [token.name for token in store.tokens.all()] == ["B", "_", "a", "é"]
    assert [model.name for model in store.models.all()] == ["_", "a", "B", "é"]


def test_the_last_report_of_each_device_is_kept(store: Store) -> None:
    first, second = (
        DeviceReport(
            DeviceStatus(name, "j", "a", "branch-0", 1, 1.5, 1.0, idle=False, fits=True, reason=""), MOMENT
        )
        for name in ("pi", "phone")
    )
    store.fleet.put([first, second])
    later = replace(first, seen=MOMENT + timedelta(minutes=1))
    store.fleet.put([later])
    assert sorted(store.fleet.all(), key=lambda report: report.status.name) == [second, later]
    store.fleet.forget(MOMENT + timedelta(seconds=1))
    assert store.fleet.all() == [later]


def test_infinite_numbers_and_any_characters_can_be_stored(store: Store, plan: BatchPlan) -> None:
    create(store, plan, "j", name='"\\ 🎉 \u2028 %s :name')
    node = GraphNode(INPUT, None, "image", (), (1, 4), "FLOAT32", 16, error=inf)
    store.jobs.record("j", [GraphSaved("a", NetworkGraph("main", "host", (node,), 64))], 0.0, {})
    graph = store.jobs.details("j", "a").graph
    assert graph is not None
    assert graph.nodes[0].error == inf
    assert store.jobs.job("j").name == '"\\ 🎉 \u2028 %s :name'


def test_infinite_numbers_in_a_plan_can_be_stored(store: Store, plan: BatchPlan) -> None:
    profile = AlgorithmProfile(adaptation=(1,), tune_steps=1, max_steps=1, loss_per_halving=inf)
    features = NetworkFeatures(model="m", kind="k", blocks=0)
    estimates = EdgeEstimates(features=features, source_steps=1, profiles={"own": profile}, scaled=())
    infinite = plan.model_copy(update={"source_costs": {"flops": inf}, "estimates": estimates})
    create(store, infinite, "j")
    (state,) = store.jobs.batches("j")
    assert state.plan == infinite


def test_the_null_character_does_not_prevent_storage(store: Store, plan: BatchPlan) -> None:
    create(store, plan, "j")
    store.jobs.record("j", [JobChanged(JobState.FAILED, "got \0 here")], 0.0, {})
    assert store.jobs.job("j").reason.replace("\N{REPLACEMENT CHARACTER}", "\0") == "got \0 here"


def test_the_null_character_in_a_plan_does_not_prevent_reading_its_other_parts(
    store: Store, plan: BatchPlan
) -> None:
    """Names of inputs come from files of callers."""
    create(store, plan.model_copy(update={"inputs": ("a\0b", "\\u0000", "\\\0")}), "j")
    (read,) = store.jobs.inputs("j")
    assert read.model == plan.model_name
    (state,) = store.jobs.batches("j")
    inputs = [name.replace("\N{REPLACEMENT CHARACTER}", "\0") for name in state.plan.inputs]
    assert inputs == ["a\0b", "\\u0000", "\\\0"]


def together(*calls: Callable[[], object]) -> list[object]:
    with ThreadPoolExecutor(len(calls)) as threads:
        return [done.result() for done in [threads.submit(call) for call in calls]]


def test_processes_that_write_at_the_same_time_number_their_events_in_turn(
    directory: Path, plan: BatchPlan
) -> None:
    """Each open store stands for a process: they share no lock in memory."""
    with open_store(directory) as first, open_store(directory) as second:
        create(first, plan, "j")
        update = Advanced("a", ProgressUpdate("adapting", 1, 2))

        def advance(store: Store) -> None:
            for _ in range(20):
                store.jobs.record("j", [update], 1.0, {})

        together(partial(advance, first), partial(advance, second))
        assert [event.sequence for event in first.jobs.events("j", 0, 99)] == list(range(1, 42))


def test_processes_that_submit_with_one_key_make_one_job(directory: Path, plan: BatchPlan) -> None:
    with open_store(directory) as first, open_store(directory) as second:
        calls = [
            partial(create, store, plan, f"{name}{number}", f"key {number}")
            for number in range(10)
            for name, store in (("a", first), ("b", second))
        ]
        together(*calls)
        assert len(jobs_in(first)) == 10


def test_an_intact_database_has_a_size_and_no_faults(store: Store, plan: BatchPlan) -> None:
    create(store, plan, "j")
    assert store.jobs.faults() == []
    assert store.jobs.size() > 4096
    assert store.jobs.shrink() >= 0
