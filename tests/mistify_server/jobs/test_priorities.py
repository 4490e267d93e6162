"""Jobs of a higher priority go first, and callers take turns."""

from collections.abc import Callable
from typing import Any

from mistify.jobs.job import JobPriority
from mistify.v1 import porting_pb2 as pb
from mistify.wire.porting import priority_to_proto
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.store.directory import open_store

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4


async def prioritize(caller: Any, job_id: str, priority: JobPriority) -> None:
    request = pb.ChangeJobRequest(job_id=job_id, priority=priority_to_proto(priority))
    await caller.call(caller.stub.ChangeJob, request)


async def test_jobs_run_by_priority_which_can_be_changed_and_survives_a_restart(
    site: Any, serving_at: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-source").touch()
    async with serving_at(site.settings()) as caller:
        ids = [(await caller.submit([make_config("a", FLOP="0.5x")])).id for _ in range(4)]
        await wait_until(lambda: bool(site.tasks("source")))
        first, second, third, fourth = ids
        await prioritize(caller, second, JobPriority.LOW)
        await prioritize(caller, fourth, JobPriority.HIGH)
    async with serving_at(site.settings()) as caller:
        await wait_until(lambda: len(site.tasks("source")) == 2)
        assert [(await caller.job(job_id)).priority for job_id in ids] == [
            JobPriority.NORMAL,
            JobPriority.LOW,
            JobPriority.NORMAL,
            JobPriority.HIGH,
        ]
        await prioritize(caller, third, JobPriority.HIGH)
        (site.control / "hold-source").unlink()
        for job_id in ids:
            await caller.finished(job_id)
    order = [task["job_id"] for task in site.tasks("package")]
    assert set(order[:2]) == {third, fourth}
    assert order[2:] == [first, second]


async def test_callers_take_turns(
    site: Any, serving_at: Any, call_at: Any, make_config: Config, wait_until: Any
) -> None:
    with open_store(site.store) as store:
        secrets = [
            create_token(store.tokens, name, [Scope.READ, Scope.SUBMIT])[1] for name in ("many", "one")
        ]
    (site.control / "hold-source").touch()
    async with serving_at(site.settings(token=TOKEN), secrets[0]) as many:
        jobs = [await many.submit([make_config("a", FLOP="0.5x")]) for _ in range(6)]
        await wait_until(lambda: bool(site.tasks("source")))
        one = call_at(many.address, secrets[1])
        own = await one.submit([make_config("a", FLOP="0.5x")])
        (site.control / "hold-source").unlink()
        await one.finished(own.id)
        await one.channel.close()
        for job in jobs:
            await many.finished(job.id)
    order = [task["job_id"] for task in site.tasks("package")]
    assert order.index(own.id) <= 2
