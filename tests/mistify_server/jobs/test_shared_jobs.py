"""Two servers on one database: one of them is killed, stopped past its lease, or hands its jobs over."""

import asyncio
import json
import signal
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobEvent, JobState
from mistify.v1 import porting_pb2 as pb
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.store.directory import open_store
from mistify_server.store.leases import FIRST_FENCE
from tests.mistify_server.conftest import COSTS
from tests.mistify_server.two_servers import server, two_servers
from tests.support.postgresql import Cluster

Config = Callable[..., dict[str, object]]
SHARES = (0.9, 0.8, 0.7)


def configs(make_config: Config) -> list[dict[str, object]]:
    return [make_config(f"at-{share}", FLOP=f"{share}x") for share in SHARES]


def check_complete(events: list[JobEvent], job: Any) -> None:
    """Check that a job has ended with every result once, and its events without gaps."""
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert (job.state, events[-1].event) == (JobState.DONE, JobState.DONE)
    met = [event.goal_id for event in events if event.event is GoalState.MET]
    assert sorted(met) == sorted(goal.id for goal in job.goals)
    assert job.spent["training"] == 0.5 + len(SHARES) * 1.5


def files(job: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the digests of the networks of a job, which do not depend on its id."""
    return {
        goal.id: [(f.name, f.sha256) for f in goal.files if f.name == "serve.tflite"] for goal in job.goals
    }


async def test_another_server_completes_the_jobs_of_one_that_was_killed(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, cluster: Cluster
) -> None:
    async with two_servers(site, call_at, cluster) as (main, joined):
        undisturbed = await joined.caller.finished((await joined.caller.submit(configs(make_config))).id)
        (site.control / "hold-adapt").touch()
        job = await main.caller.submit(configs(make_config), key="k")
        watching = asyncio.create_task(joined.caller.events(job.id))
        before = len(site.tasks("adapt"))
        await wait_until(lambda: len(site.tasks("adapt")) > before)
        main.process.kill()
        await main.process.wait()
        (site.control / "hold-adapt").unlink()
        events = await watching
        job = await joined.caller.job(job.id)
        assert (await joined.caller.submit(configs(make_config), key="k")).id == job.id
    check_complete(events, job)
    assert files(job) == files(undisturbed)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_job_stays_with_a_server_whose_clock_is_wrong_until_that_is_killed(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, cluster: Cluster, *, hours: int
) -> None:
    database = cluster.new_database()
    schema, patient = database.rpartition("%3D")[2], ("--lease", "4")  # in time on a busy machine
    expires, fences = f"SELECT min(expires) FROM {schema}.servers", f"SELECT fence FROM {schema}.jobs"  # noqa: S608
    (site.control / "hold-adapt").touch()
    async with (
        server(site, call_at, database, *patient, "--clock-off-by", str(hours * 3600)) as main,
        server(site, call_at, database, *patient, "--join") as joined,
    ):
        job = await main.caller.submit(configs(make_config))
        await wait_until(lambda: bool(site.tasks("adapt")))
        ((before,),) = cluster.execute(expires)
        await wait_until(lambda: cluster.execute(expires)[0][0] > before + 5.0)  # longer than a lease
        assert cluster.execute(fences) == [(FIRST_FENCE,)]  # the other server has not taken the job
        main.process.kill()
        await main.process.wait()
        (site.control / "hold-adapt").unlink()
        check_complete(await joined.caller.events(job.id), await joined.caller.job(job.id))


async def test_late_results_of_a_server_that_was_stopped_are_refused(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, cluster: Cluster
) -> None:
    (site.control / "hold-adapt").touch()
    async with two_servers(site, call_at, cluster) as (main, joined):
        job = await main.caller.submit(configs(make_config))
        await wait_until(lambda: bool(site.tasks("adapt")))
        main.process.send_signal(signal.SIGSTOP)
        await wait_until(lambda: len(site.tasks("adapt")) > 1)  # the other server has taken the job
        (site.control / "hold-adapt").unlink()
        await joined.caller.finished(job.id)
        main.process.send_signal(signal.SIGCONT)
        events = await main.caller.events(job.id)
        check_complete(events, await main.caller.job(job.id))
        other = await main.caller.submit([make_config("later", FLOP="0.5x")])  # it goes on with others
        assert (await main.caller.finished(other.id)).state is JobState.DONE
        assert await joined.caller.events(job.id) == events


async def test_a_server_that_is_stopped_hands_its_jobs_over(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, cluster: Cluster
) -> None:
    (site.control / "hold-adapt").touch()
    async with two_servers(site, call_at, cluster) as (main, joined):
        job = await main.caller.submit(configs(make_config))
        await wait_until(lambda: bool(site.tasks("adapt")))
        seen: list[JobEvent] = []

        async def watch() -> None:
            seen.extend([event async for event in main.caller.watch(job.id)])

        watching = asyncio.create_task(watch())
        main.process.terminate()
        with pytest.raises(MistifyError) as raised:
            await watching
        assert raised.value.code is ErrorCode.UNAVAILABLE
        assert await main.process.wait() == 0
        (site.control / "hold-adapt").unlink()
        after = seen[-1].sequence if seen else 0
        check_complete([*seen, *await joined.caller.events(job.id, after)], await joined.caller.job(job.id))


async def test_jobs_of_another_server_are_extended_and_cancelled(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, cluster: Cluster
) -> None:
    (site.control / "hold-adapt").touch()
    async with two_servers(site, call_at, cluster) as (main, joined):
        job = await main.caller.submit([make_config("a", FLOP="0.5x")])
        other = await main.caller.submit([make_config("b", FLOP="0.4x")])
        await wait_until(lambda: len(site.tasks("adapt")) == 2)  # one on each server
        await joined.caller.add(job.id, [make_config("c", FLOP="0.3x")])
        await main.caller.add(other.id, [make_config("d", FLOP="0.2x")])
        assert (await joined.caller.cancel(other.id)).state is JobState.CANCELLED
        (site.control / "hold-adapt").unlink()
        finished = await joined.caller.finished(job.id)
        assert [(goal.id, goal.state) for goal in finished.goals] == [
            ("a", GoalState.MET),
            ("c", GoalState.MET),
        ]
        cancelled = await main.caller.events(other.id)
        assert cancelled[-1].event is JobState.CANCELLED
        assert len(site.tasks("package")) == 2


async def test_a_job_that_another_server_pauses_starts_no_steps(
    site: Any,
    serving_at: Any,
    make_config: Config,
    wait_until: Any,
    cluster: Cluster,
    *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catch_up, noticed = RunningJobs.catch_up, list[str]()

    async def noting(jobs: RunningJobs, job_id: str) -> None:
        await catch_up(jobs, job_id)
        noticed.append(job_id)

    monkeypatch.setattr(RunningJobs, "catch_up", noting)
    (site.control / "hold-adapt").touch()
    async with serving_at(site.settings(database=cluster.new_database())) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x")])
        await wait_until(lambda: bool(site.tasks("adapt")))
        with open_store(site.store) as other:
            other.jobs.set_paused(job.id, paused=True)
            await wait_until(lambda: job.id in noticed)
            (site.control / "hold-adapt").unlink()
            await wait_until(lambda: bool(other.jobs.batches(job.id)[0].checkpoints))
            await caller.finished((await caller.submit([make_config("b", FLOP="0.4x")])).id)
            assert {task["job_id"] for task in site.tasks("package")}.isdisjoint({job.id})
            other.jobs.set_paused(job.id, paused=False)
        assert (await caller.finished(job.id)).state is JobState.DONE


async def test_calls_to_a_server_that_is_stopped_succeed_at_another(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, cluster: Cluster
) -> None:
    """Servers can be upgraded one after the other: no call fails otherwise, and nothing is done twice."""
    refused = asyncio.Event()
    keys: list[str] = []

    async def at_either(call: Callable[[Any], Any]) -> Any:
        """Make a call at the main server, and again at the other one if the first says so."""
        try:
            return await call(main.caller.stub)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            refused.set()
            return await call(joined.caller.stub)

    def submission(key: str, *goals: dict[str, object]) -> Callable[[Any], Any]:
        request = pb.SubmitBatchRequest(config_json=json.dumps(goals), idempotency_key=key)
        return lambda stub: stub.SubmitBatch(request, timeout=60)

    async def keep_calling(number: int) -> None:
        while not refused.is_set():
            key = f"{number}-{len(keys)}"
            keys.append(key)
            job = await at_either(submission(key, make_config("a", FLOP="0.5x")))
            one = pb.GetJobRequest(job_id=job.id)
            assert await at_either(lambda stub, one=one: stub.GetJob(one, timeout=60))
            listed = await at_either(lambda stub: stub.ListJobs(pb.ListJobsRequest(page_size=9), timeout=60))
            assert listed.jobs

    async with two_servers(site, call_at, cluster) as (main, joined):
        await main.caller.submit([make_config("a", FLOP="0.5x")])
        (site.control / "hold-inspect").touch()
        site.write("other.json", {"costs": COSTS, "floor": {"flops": 100.0, "params": 20.0}})
        inspected = [make_config("b", FLOP="0.5x", model="other.json")]
        plan = pb.PlanRequest(config_json=json.dumps(inspected))
        waiting = [
            asyncio.create_task(at_either(submission("inspected", *inspected))),
            asyncio.create_task(at_either(lambda stub: stub.Plan(plan, timeout=60))),
        ]
        await wait_until(lambda: len(site.tasks("inspect")) > 1)
        calling = [asyncio.create_task(keep_calling(number)) for number in range(3)]
        await wait_until(lambda: len(keys) > 3)
        main.process.terminate()
        assert await main.process.wait() == 0
        (site.control / "hold-inspect").unlink()
        await asyncio.gather(*waiting, *calling)
        jobs = (await joined.caller.page(100)).jobs
        assert len(jobs) == len(keys) + 2
        for job in jobs:
            assert (await joined.caller.finished(job.id)).state is JobState.DONE
