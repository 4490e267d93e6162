"""Devices and roll-outs of two server processes on one database, one of which is killed."""

import asyncio
from dataclasses import replace
from typing import Any

from mistify.fleet import DeviceStatus
from mistify.jobs.job import GoalState, JobState, PackageFile
from mistify.rollouts import Instruction, Rollout, RolloutState
from mistify_client.rpc.devices import DevicesClient
from mistify_client.rpc.rollouts import RolloutsClient
from mistify_server.store.directory import open_store
from tests.mistify_server.rollouts.site import DIGEST
from tests.mistify_server.two_servers import server
from tests.support.filled_store import put_job
from tests.support.fleets import JOB, after, device, new_rollout
from tests.support.many_goals import job_of
from tests.support.postgresql import Cluster


async def test_devices_and_operators_use_any_server_and_go_on_when_the_main_one_is_killed(
    site: Any, call_at: Any, cluster: Cluster
) -> None:
    database = cluster.new_database()
    store, status = site.store, device("kitchen")
    async with (
        server(site, call_at, database) as main,
        server(site, call_at, database, "--join") as joined,
    ):
        with open_store(store) as opened:
            goal = replace(job_of(1).goals[0], id="phone-2", state=GoalState.MET)
            goal = replace(goal, files=(PackageFile("manifest.json", 100, DIGEST),))
            put_job(opened, replace(job_of(1), id=JOB, goals=(goal,), state=JobState.DONE))
        assert await report(main, status) == Instruction()
        rollout = await changed(main, "start", new_rollout(1.0))
        assert (await report(joined, status)).wanted == rollout.wanted
        assert await changed(joined, "pause", rollout.id) == await changed(main, "rollout", rollout.id)
        assert await report(main, status) == Instruction()
        await changed(main, "resume", rollout.id)
        begun = after(status, rollout.id)
        assert (await report(main, begun)).withdrawn is None
        main.process.kill()
        await main.process.wait()
        with open_store(store) as opened:
            assert [each.status for each in opened.fleet.all()] == [begun]
        assert (await changed(joined, "roll_back", rollout.id)).state is RolloutState.ROLLED_BACK
        async with server(site, call_at, database) as restarted:
            for each in (restarted, joined):
                assert await report(each, begun) == Instruction(withdrawn=rollout.id)
                assert await report(each, status) == Instruction()


async def report(to: Any, status: DeviceStatus) -> Instruction:
    with DevicesClient(to.caller.address) as client:
        return await asyncio.to_thread(client.report_status, status)


async def changed(at: Any, method: str, *arguments: Any) -> Rollout:
    with RolloutsClient(at.caller.address) as client:
        return (await asyncio.to_thread(getattr(client, method), *arguments)).rollout
