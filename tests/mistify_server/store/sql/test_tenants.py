"""The store of a tenant contains nothing of other tenants."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from mistify.costs.devices import Device, DeviceTable
from mistify.errors import ErrorCode, MistifyError
from mistify.fleet import DeviceReport
from mistify.jobs.job import Goal, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.part import GoalSelection
from mistify.quotas import Quota
from mistify.rollouts import Rollout, RolloutCriteria, RolloutState
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import CallerId, Scope
from mistify_server.store.changes import CheckpointSaved, JobChanged, Submission
from mistify_server.store.directory import Store
from mistify_server.store.edges import EdgeFeatures, EdgeRecord
from mistify_server.store.jobs import JobChange, JobSearch, JobStore
from mistify_server.store.plans import BatchPlan
from mistify_server.store.tuning import Group, Member
from mistify_server.tasks.results import AdaptResult
from tests.support.fleets import device
from tests.support.stored import jobs_in

MOMENT = datetime(2026, 11, 29, tzinfo=UTC)
GOAL = Goal(id="a", batch=0, spec=PackageSpec({"flops": 1.0}))

#: What a caller does with a job of its own, each of which names the job.
USES: dict[str, Callable[[JobStore], object]] = {
    "job": lambda jobs: jobs.job("red-1"),
    "ended": lambda jobs: jobs.ended("red-1"),
    "part": lambda jobs: jobs.part("red-1", GoalSelection()),
    "goal": lambda jobs: jobs.goal("red-1", "a"),
    "details": lambda jobs: jobs.details("red-1", "a"),
    "inputs": lambda jobs: jobs.inputs("red-1"),
    "config_text": lambda jobs: jobs.config_text("red-1"),
    "origin": lambda jobs: jobs.origin("red-1"),
    "submitter": lambda jobs: jobs.submitter("red-1"),
    "batches": lambda jobs: jobs.batches("red-1"),
    "with_batches": lambda jobs: jobs.with_batches("red-1"),
    "events": lambda jobs: jobs.events("red-1", 0, 9),
    "latest_events": lambda jobs: jobs.latest_events("red-1", 9),
    "added": lambda jobs: jobs.added("red-1", "key", "[]"),
    "page": lambda jobs: jobs.page(9, 9, before="red-1"),
    "change": lambda jobs: jobs.change("red-1", JobChange(name="taken over")),
    "set_paused": lambda jobs: jobs.set_paused("red-1", paused=True),
    "hide": lambda jobs: jobs.hide("red-1", 1),
    "restore": lambda jobs: jobs.restore("red-1"),
    "remove": lambda jobs: jobs.remove("red-1"),
}


def create(store: Store, plan: BatchPlan, job_id: str, key: str | None = None, config: str = "[]") -> Job:
    job = Job(job_id, JobState.QUEUED, (GOAL,), created_unix_ms=5, submitted_by="ci", name="same")
    return store.jobs.create(Submission(job, [plan], config, key))


@pytest.fixture
def red(store: Store, plan: BatchPlan) -> Store:
    """Return the store of a tenant with a finished job."""
    own = store.of("red")
    create(own, plan, "red-1", "key")
    own.jobs.record("red-1", [JobChanged(JobState.DONE)], 0.0, {})
    return own


@pytest.fixture
def blue(store: Store, red: Store) -> Store:
    """Return the store of another tenant."""
    return store.of("blue")


@pytest.mark.parametrize("use", USES)
def test_jobs_of_others_are_unknown(red: Store, blue: Store, use: str) -> None:
    with pytest.raises(MistifyError) as caught:
        USES[use](blue.jobs)
    assert (caught.value.code, str(caught.value)) == (
        ErrorCode.NOT_FOUND,
        'there is no job "red-1"; `mistify jobs` lists them',
    )
    assert red.jobs.job("red-1").name == "same"
    USES[use](red.jobs)


def test_lists_and_counts_are_of_own_jobs(store: Store, red: Store, blue: Store, plan: BatchPlan) -> None:
    create(blue, plan, "blue-1")
    create(store, plan, "default-1")
    assert [job.id for job in jobs_in(red)] == ["red-1"]
    assert [job.id for job in jobs_in(blue)] == ["blue-1"]
    assert [job.id for job in jobs_in(store.of("default"))] == ["default-1"]
    assert [job.id for job in jobs_in(store)] == ["default-1", "blue-1", "red-1"]
    assert [part.job.id for part in blue.jobs.page(9, 9, search=JobSearch("same")).jobs] == ["blue-1"]
    assert [own.jobs.unfinished_of("ci") for own in (red, blue)] == [0, 1]
    assert red.jobs.goal_states("blue-1").total() == 0
    assert store.jobs.submitter("blue-1") == CallerId("blue", "ci")


def test_idempotency_keys_of_tenants_do_not_meet(store: Store, blue: Store, plan: BatchPlan) -> None:
    assert blue.jobs.find("key", "[]") is None
    assert create(blue, plan, "blue-1", "key", "[1]").id == "blue-1"
    assert create(blue, plan, "blue-2", "key", "[1]").id == "blue-1"
    assert create(store, plan, "default-1", "blue/key").id == "default-1"


def test_forecasts_learn_from_own_jobs(red: Store, blue: Store, store: Store) -> None:
    case = EdgeFeatures(
        subject="same", kind="dense", algorithm="m", halvings=1.0, distance=1.0, share=1.0, steps=100
    )
    record = EdgeRecord(case=case, source_steps=200, source=0.9, lost=0.1, seconds=2.0)
    adapted = AdaptResult(checkpoint="c", costs={}, accuracy=0.8, met=True, reason="", steps=3, spent={})
    red.jobs.record("red-1", [CheckpointSaved(0, 0, adapted, record)], 0.0, {})
    assert red.jobs.edges("same", "dense", 9) == [record]
    assert store.jobs.edges("same", "dense", 9) == [record]
    assert blue.jobs.edges("same", "dense", 9) == []


def test_uploads_are_in_use_by_own_jobs(red: Store, blue: Store, store: Store, plan: BatchPlan) -> None:
    digest = "d" * 64
    create(red, plan, "red-2", config=f"upload:{digest}/model.keras")
    assert digest in red.jobs.referenced_digests()
    assert digest in store.jobs.referenced_digests()
    assert blue.jobs.referenced_digests() == set()


def test_names_of_tokens_and_devices_are_those_of_a_tenant(red: Store, blue: Store, store: Store) -> None:
    create_token(red.tokens, "ci", [Scope.READ], limits={"jobs": 1})
    _, secret = create_token(blue.tokens, "ci", [Scope.READ])
    assert secret
    assert [own.tokens.limits("ci") for own in (red, blue, store)] == [Quota(jobs=1), Quota(), Quota()]
    assert [token.holder for token in blue.tokens.all()] == [CallerId("blue", "ci")]
    red.tokens.revoke("ci")
    assert [len(own.tokens.all()) for own in (red, blue, store)] == [0, 1, 0]
    for own, machine in ((red, "A72"), (blue, "M1")):
        table = DeviceTable("board", machine, "LiteRT", ())
        own.devices.put(Device("board", machine, "LiteRT", (), MOMENT), table, [])
        own.fleet.put([DeviceReport(device(machine), MOMENT)])
    machines = [[each.machine for each in own.devices.all()] for own in (red, blue, store)]
    assert machines == [["A72"], ["M1"], []]
    assert blue.devices.table("board").machine == "M1"
    with pytest.raises(MistifyError, match='no device "board"'):
        store.devices.table("board")
    red.fleet.forget(MOMENT.replace(year=2027))
    assert [[each.status.name for each in own.fleet.all()] for own in (red, blue)] == [[], ["M1"]]
    assert store.tenants() == ["blue", "default", "red"], "the limits of a revoked token stay"


def test_roll_outs_are_those_of_a_tenant(red: Store, blue: Store) -> None:
    rollout = Rollout(
        "r", "red-1", "a", "0" * 64, "phone", "*", (1.0,), RolloutCriteria(), RolloutState.RUNNING, 0, 1,
        "started", 1, "ci",
    )  # fmt: skip
    red.rollouts.put(rollout, {})
    red.rollouts.put(rollout, red.rollouts.all())
    assert (red.rollouts.all(), blue.rollouts.all()) == ({rollout.id: rollout}, {})


def test_groups_belong_to_the_tenant_of_their_job(red: Store, blue: Store, store: Store) -> None:
    group = Group("home", "red-1", 0, "spatiotemporal", {})
    store.tuning.add_group(group)
    member = Member("home", "m")
    red.tuning.lease(member, 9)
    assert [own.tuning.groups() for own in (red, blue, store)] == [[group], [], [group]]
    assert [own.tuning.expiry(member) for own in (red, blue)] == [9, None]
    for use in (lambda: blue.tuning.group("home"), lambda: blue.tuning.lease(member, 10)):
        with pytest.raises(MistifyError, match='no group "home"') as caught:
            use()
        assert caught.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("tenant", ["", "a/b", "..", "a b", "x" * 65])
def test_a_tenant_has_a_name_that_a_directory_can_have(store: Store, tenant: str) -> None:
    with pytest.raises(MistifyError, match="expected up to 64 letters"):
        create_token(store.of(tenant).tokens, "ci", [Scope.READ])
