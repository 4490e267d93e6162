"""Values that only a newer version knows cost nothing but the jobs that have them, and say what to do."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from benchmarks.tuning import fleet
from mistify.costs.devices import Device, DeviceTable
from mistify.errors import ErrorCode, MistifyError
from mistify.fleet import DeviceReport
from mistify.jobs.job import Goal, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.part import GoalSelection
from mistify.peers.hints import Hints
from mistify.peers.membership import PackageReference, Publication
from mistify.rollouts import Rollout, RolloutCriteria, RolloutState
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.store.changes import JobChanged, Submission
from mistify_server.store.directory import open_store
from mistify_server.store.jobs import JobSearch, JobStore
from mistify_server.store.plans import BatchPlan
from mistify_server.store.removal import remove_ended
from mistify_server.store.tuning import Member
from tests.support.fleets import device
from tests.support.stored import digits_job

READS: Final[dict[str, Callable[[JobStore, Job], object]]] = {
    "job": lambda jobs, job: jobs.job(job.id),
    "part": lambda jobs, job: jobs.part(job.id, GoalSelection(page_size=1)),
    "ended": lambda jobs, job: jobs.ended(job.id),
    "end": lambda jobs, job: jobs.end(job.id, JobChanged(JobState.CANCELLED)),
    "pause": lambda jobs, job: jobs.set_paused(job.id, paused=True),
    "remove": lambda jobs, job: jobs.remove(job.id),
    "batches": lambda jobs, job: jobs.batches(job.id),
    "inputs": lambda jobs, job: jobs.inputs(job.id),
    "details": lambda jobs, job: jobs.details(job.id, job.goals[0].id),
    "events": lambda jobs, job: jobs.events(job.id, 0, 9),
    "latest events": lambda jobs, job: jobs.latest_events(job.id, 9),
    "goal states": lambda jobs, job: jobs.goal_states(job.id),
}

GOAL: Final = Goal(id="a", batch=0, spec=PackageSpec({"flops": 1.0}))
JOB: Final = ("job", "part")
STATE: Final = (*JOB, "ended", "end", "pause", "remove")
EVENTS: Final = ("events", "latest events")


def change(directory: Path, statement: str) -> None:
    with closing(sqlite3.connect(directory / "mistify.db")) as connection, connection:
        assert connection.execute(statement).rowcount


@pytest.mark.parametrize(
    ("statement", "value", "fail"),
    [
        ("UPDATE jobs SET state = 'held'", "'held' is not a valid JobState", STATE),
        ("UPDATE jobs SET priority = 'top'", "'top' is not a valid JobPriority", JOB),
        ("UPDATE goals SET state = 'held'", "'held' is not a valid GoalState", (*JOB, "goal states")),
        ("""UPDATE events SET body = '{"state": "held"}' WHERE kind = 'job'""", "JobState", EVENTS),
        ("""UPDATE events SET body = '{"state": "held"}' WHERE kind = 'goal'""", "GoalState", EVENTS),
        ("UPDATE events SET kind = 'mood'", "ProgressUpdate", EVENTS),
        ("UPDATE batches SET plan = json_set(plan, '$.dataset.faster', 1)", "faster", ("batches", "inputs")),
        (
            "INSERT INTO curve_points (job_id, goal_id, measured, number, sequence, point) "
            "SELECT job_id, id, 0, 0, 1, '{}' FROM goals",
            "ProgressUpdate",
            ("details",),
        ),
        ("INSERT INTO layers SELECT job_id, id, '{}' FROM goals", "LayerTable", ("details",)),
    ],
)
def test_what_cannot_be_read_says_so(
    tmp_path: Path, statement: str, value: str, fail: tuple[str, ...]
) -> None:
    job = digits_job(tmp_path)
    change(tmp_path, statement)
    with open_store(tmp_path) as store:
        for name in fail:
            with pytest.raises(MistifyError, match=f"(?s)job {job.id} was .*{value}.*upgrade") as raised:
                READS[name](store.jobs, job)
            assert raised.value.code is ErrorCode.STORE_VERSION, name
        for name in READS.keys() - set(fail):
            if name not in ("end", "pause", "remove"):
                READS[name](store.jobs, job)


@pytest.mark.parametrize(
    ("statement", "selection", "listed"),
    [
        ("UPDATE jobs SET state = 'held'", GoalSelection(), "ca"),
        ("UPDATE jobs SET state = 'held'", None, "ca"),
        ("UPDATE jobs SET priority = 'top'", GoalSelection(page_size=1), "ca"),
        ("UPDATE goals SET state = 'held'", GoalSelection(), "cba"),
        ("UPDATE goals SET state = 'held'", None, "ca"),
    ],
)
def test_the_other_jobs_are_listed(
    tmp_path: Path, plan: BatchPlan, statement: str, selection: GoalSelection | None, listed: str
) -> None:
    with open_store(tmp_path) as store:
        for job_id in "abc":
            job = Job(job_id, JobState.QUEUED, (GOAL,), created_unix_ms=0)
            store.jobs.create(Submission(job, [plan], "[]", None))
        change(tmp_path, f"{statement} WHERE {'job_id' if 'goals' in statement else 'id'} = 'b'")
        page = store.jobs.page(9, 9, selection=selection)
        assert "".join(part.job.id for part in page.jobs) == listed
        assert [job.id for job in page.unreadable] == [*"abc".translate(str.maketrans("", "", listed))]
        assert all("job b was written by another version" in job.reason for job in page.unreadable)
        newest = store.jobs.page(2, 9, selection=selection)
        oldest = store.jobs.page(9, 9, newest.next_page_token).jobs
        assert ([part.job.id for part in newest.jobs][:1], [part.job.id for part in oldest]) == (["c"], ["a"])


def test_a_job_that_may_be_unfinished_counts_as_such(tmp_path: Path) -> None:
    digits_job(tmp_path)
    with open_store(tmp_path) as store:
        (job,) = store.jobs.page(9, 999).jobs
        submitter = job.job.submitted_by
        assert (store.jobs.all_ended(), store.jobs.unfinished_of(submitter)) == (True, 0)
        change(tmp_path, "UPDATE jobs SET state = 'held'")
        assert (store.jobs.all_ended(), store.jobs.unfinished_of(submitter)) == (False, 1)


def test_a_removed_job_that_cannot_be_read_keeps_no_other_one(tmp_path: Path, plan: BatchPlan) -> None:
    with open_store(tmp_path) as store:
        for job_id in ("new", "old"):
            job = Job(job_id, JobState.DONE, (), created_unix_ms=0)
            store.jobs.create(Submission(job, [plan], "[]", None))
            store.jobs.hide(job_id, 1)
        change(tmp_path, "UPDATE jobs SET state = 'held' WHERE id = 'new'")
        removal = remove_ended(store, ["new", "old"], busy_since=0.0)
        assert {job_id: error.code for job_id, error in removal.kept.items()} == {
            "new": ErrorCode.STORE_VERSION
        }
        assert [job.id for job in store.jobs.page(9, 9, search=JobSearch(removed=True)).unreadable] == ["new"]
        assert not store.jobs.page(9, 9, search=JobSearch(removed=True)).jobs


def test_a_package_that_may_be_rolled_out_is_kept(tmp_path: Path) -> None:
    job = digits_job(tmp_path)
    with open_store(tmp_path) as store:
        store.tuning.remove_group("home")
        store.rollouts.put(rollout_of(job, RolloutState.STOPPED), {})
        change(tmp_path, "UPDATE rollouts SET state = 'adrift'")
        with pytest.raises(MistifyError, match="installs a package of the job") as raised:
            store.jobs.hide(job.id, 1)
        assert raised.value.code is ErrorCode.CONFLICT


def rollout_of(job: Job, state: RolloutState) -> Rollout:
    goal = job.goals[0].id
    return Rollout(
        "r", job.id, goal, "0" * 64, goal, "*", (1.0,), RolloutCriteria(), state, 0, 0, "", 0, "local"
    )


def test_jobs_are_counted_in_the_states_that_are_known(tmp_path: Path) -> None:
    job = digits_job(tmp_path)
    change(tmp_path, "UPDATE goals SET state = 'held' WHERE position = 0")
    with open_store(tmp_path) as store:
        assert store.jobs.states()[1].total() == len(job.goals) - 1
    change(tmp_path, "UPDATE jobs SET state = 'held'")
    with open_store(tmp_path) as store:
        assert store.jobs.states()[0].total() == 0


def test_reports_of_devices_that_cannot_be_read_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path) as store:
        store.fleet.put(DeviceReport(device(name), datetime.now(UTC)) for name in ("attic", "cellar"))
        change(
            tmp_path, "UPDATE fleet SET status = json_set(status, '$.fits', 'nearly') WHERE name = 'attic'"
        )
        assert [report.status.name for report in store.fleet.all()] == ["cellar"]
    assert "the report of the device attic was written by another version of Mistify" in caplog.text


def test_a_measured_device_that_cannot_be_read_costs_no_other_one(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for name in ("new", "old"):
            measured = Device(name, "Cortex-A72", "LiteRT 2", (), datetime.now(UTC))
            store.devices.put(measured, DeviceTable(name, "Cortex-A72", "LiteRT 2", ()), [])
        change(tmp_path, "UPDATE devices SET device = '7', readings = '7', profiles = '7' WHERE name = 'new'")
        assert [each.name for each in store.devices.all()] == ["old"]
        reads: list[Callable[[str], object]] = [
            store.devices.profiles,
            store.devices.table,
            lambda name: store.devices.report(name, "profile", "package", 1.0),
        ]
        for read in reads:
            with pytest.raises(
                MistifyError, match=r"the device new was written by another .*upgrade"
            ) as raised:
                read("new")
            assert raised.value.code is ErrorCode.STORE_VERSION
        assert store.devices.profiles("old") == []


def test_scopes_that_are_not_known_give_access_to_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        create_token(store.tokens, "ci", [Scope.READ])
        change(tmp_path, "UPDATE tokens SET scopes = 'fly read'")
        (token,) = store.tokens.all()
        assert (token.scopes, store.tokens.find([token.sha256])) == ({Scope.READ}, {token.sha256: token})


def test_publications_that_cannot_be_read_can_be_removed_and_cost_no_other_one(tmp_path: Path) -> None:
    fleet.prepare(tmp_path)
    with open_store(tmp_path) as store:
        for name in ("new", "old"):
            member = Member(fleet.GROUP, name)
            store.tuning.lease(member, 5)
            package = PackageReference(fleet.JOB, fleet.GOAL, "p")
            store.tuning.publish(member, Publication(package, 1, 0.5, 0.5, Hints(), 9, name))
        change(tmp_path, "UPDATE tuning_publications SET hints = '{\"mood\": 1}' WHERE member = 'new'")
        assert [*store.tuning.publications(fleet.GROUP)] == ["old"]
        with pytest.raises(MistifyError, match=r"the publication of the member new .*upgrade") as raised:
            store.tuning.published(Member(fleet.GROUP, "new"))
        assert raised.value.code is ErrorCode.STORE_VERSION
        assert store.tuning.leave(Member(fleet.GROUP, "new")) == "new"


def test_edges_that_cannot_be_read_teach_nothing(tmp_path: Path) -> None:
    digits_job(tmp_path)
    with open_store(tmp_path) as store:
        edges = store.jobs.edges("", "convolutional", 9)
    change(tmp_path, "UPDATE edges SET record = json_set(record, '$.faster', 1) WHERE number = 2")
    with open_store(tmp_path) as store:
        assert store.jobs.edges("", "convolutional", 9) == [edges[0], *edges[2:]]


@pytest.mark.parametrize("statement", ["UPDATE jobs SET state = 'held'", "UPDATE jobs SET priority = 'top'"])
def test_a_job_that_cannot_be_read_is_not_free_but_others_are(
    tmp_path: Path, plan: BatchPlan, statement: str
) -> None:
    with open_store(tmp_path) as store:
        for job_id in ("new", "old"):
            job = Job(job_id, JobState.QUEUED, (GOAL,), created_unix_ms=0)
            store.jobs.create(Submission(job, [plan], "[]", None))
        change(tmp_path, f"{statement} WHERE id = 'new'")
        new, old = store.leases.situations(["new"])
        assert (old.job_id, old.free, old.error) == ("old", True, None)
        assert (new.job_id, new.free) == ("new", False)
        assert new.error is not None
        assert new.error.code is ErrorCode.STORE_VERSION
