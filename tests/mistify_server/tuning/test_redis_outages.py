"""The coordinator with an index in Redis: outages, restarts, and several servers."""

import asyncio
import os
import signal
from dataclasses import replace
from hashlib import sha256

import pytest

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.directory import open_store
from mistify_server.tuning.service import LEASE_SECONDS, TuningService
from mistify_server.tuning.storage import IndexStorage


async def test_a_member_that_published_while_redis_was_down_is_found_after_a_retry(
    tmp_path, clock, redis_at, port, coordinator_over
):
    package = fleet.prepare(tmp_path / "store")
    one, other = fleet.device(0), fleet.device(1)
    with open_store(tmp_path / "store") as store:
        with redis_at(port) as address:
            service = TuningService(store, IndexStorage.of(address), clock)
            coordinator = coordinator_over(store, service, package)
            await coordinator.enter(1)
            await service.join(one.key)
        with pytest.raises(MistifyError, match="the index cannot be reached") as caught:
            await coordinator.publish(one)
        assert caught.value.code is ErrorCode.UNAVAILABLE
        with redis_at(port):
            await coordinator.publish(one)
            assert [peer.member for peer in await coordinator.peers(other, 5)] == [one.key.member]


async def test_changes_while_redis_is_down_leave_no_files(tmp_path, clock, redis_at, port, coordinator_over):
    package = fleet.prepare(tmp_path / "store")
    with open_store(tmp_path / "store") as store:
        with redis_at(port) as address:
            service = TuningService(store, IndexStorage.of(address), clock)
            coordinator = coordinator_over(store, service, package)
            me, silent, gone = await coordinator.enter(0, 1, 2)
        again = replace(me, weights=fleet.device(5).weights)
        with pytest.raises(MistifyError, match="the index cannot be reached"):
            await coordinator.publish(again, version=2)
        assert coordinator.files == {sha256(device.weights).hexdigest() for device in (again, silent, gone)}
        await service.leave(gone.key)
        clock.now += 0.9 * LEASE_SECONDS
        await service.join(me.key)
        clock.now += 0.2 * LEASE_SECONDS
        assert not await service.forget_silent()
        assert coordinator.files == {sha256(again.weights).hexdigest()}


async def test_an_index_lost_by_redis_is_rebuilt(tmp_path, clock, redis_at, port, coordinator_over):
    package = fleet.prepare(tmp_path / "store")
    with open_store(tmp_path / "store") as store:
        with redis_at(port) as address:
            service = TuningService(store, IndexStorage.of(address), clock)
            coordinator = coordinator_over(store, service, package)
            me, peer = await coordinator.enter(0, 1)
        for _ in range(2):
            with redis_at(port):
                assert [actual.member for actual in await coordinator.peers(me, 5)] == [peer.key.member]


async def test_servers_that_share_a_redis_may_have_groups_of_the_same_name(
    tmp_path, clock, redis_address, coordinator_over
):
    package = fleet.prepare(tmp_path / "production")
    fleet.prepare(tmp_path / "staging")
    storage = IndexStorage.of(redis_address)
    with open_store(tmp_path / "production") as production, open_store(tmp_path / "staging") as staging:
        one, other = (
            coordinator_over(store, TuningService(store, storage, clock), package)
            for store in (production, staging)
        )
        me, peer = await one.enter(0, 1)
        await other.enter(2, 3)
        assert [actual.member for actual in await one.peers(me, 5)] == [peer.key.member]


async def test_the_server_responds_while_redis_is_unresponsive(
    tmp_path, redis_at, port, coordinator_over, monkeypatch
):
    redis = pytest.importorskip("redis")
    monkeypatch.setattr("mistify_server.tuning.storage.ANSWER_SECONDS", 600.0)
    package = fleet.prepare(tmp_path / "store")
    with redis_at(port) as address, open_store(tmp_path / "store") as store:
        coordinator = coordinator_over(store, TuningService(store, IndexStorage.of(address)), package)
        me, peer = await coordinator.enter(0, 1)
        process = redis.Redis(port=port).info("server")["process_id"]
        os.kill(process, signal.SIGSTOP)
        try:
            call = asyncio.create_task(coordinator.peers(me, 5))
            for _ in range(5):
                await asyncio.sleep(0)
            assert (await coordinator.service.join(peer.key)).version == 1
        finally:
            os.kill(process, signal.SIGCONT)
        assert [actual.member for actual in await call] == [peer.key.member]
