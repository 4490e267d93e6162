"""The coordinator: members that join, find peers, leave and expire."""

import asyncio
import time
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify.peers.correlation import correlation
from mistify.peers.membership import MemberKey
from mistify_server.store.sql.backend import Backend
from mistify_server.tuning.service import LEASE_SECONDS, SWEEP_SECONDS, TuningService
from tests.mistify_client.coordinators import running
from tests.support.gates import kept_off_event_loops


async def test_peers_are_the_nearest_members_with_their_weights_and_hints(coordinator):
    devices = await coordinator.enter(*range(20))
    me, others = devices[0], devices[1:]
    actual = await coordinator.peers(me, 4)
    measure = correlation("spatiotemporal", fleet.SETTINGS).point
    by_distance = sorted(others, key=lambda other: np.linalg.norm(measure(other.hints) - measure(me.hints)))
    assert [peer.member for peer in actual] == [other.key.member for other in by_distance[:4]]
    for (peer, weights), other in zip(actual.items(), by_distance, strict=False):
        assert weights == other.weights
        assert (peer.package, peer.version, peer.loss, peer.accuracy) == (coordinator.package, 1, 0.5, 0.75)
        assert (peer.size, peer.sha256) == (len(weights), sha256(weights).hexdigest())
        assert peer.distance == pytest.approx(np.linalg.norm(measure(other.hints) - measure(me.hints)))


async def test_weights_that_the_caller_has_are_not_sent_again(coordinator):
    me, whole, part = await coordinator.enter(0, 1, 2)
    held = {sha256(whole.weights).hexdigest(): len(whole.weights), sha256(part.weights).hexdigest(): 10}
    sent = {peer.member: weights for peer, weights in (await coordinator.peers(me, 5, held)).items()}
    assert sent == {whole.key.member: b"", part.key.member: part.weights[10:]}


async def test_a_new_version_replaces_the_old_one_and_its_file(coordinator):
    me, peer = await coordinator.enter(0, 1)
    again = replace(peer, weights=fleet.device(5).weights)
    await coordinator.publish(again, version=2)
    (actual,) = (await coordinator.peers(me, 5)).items()
    assert (actual[0].version, actual[1]) == (2, again.weights)
    assert coordinator.files == {sha256(device.weights).hexdigest() for device in (me, again)}


async def test_a_moved_device_has_other_peers(coordinator):
    me, near, far = await coordinator.enter(0, 1, 50)
    assert [peer.member for peer in await coordinator.peers(me, 1)] == [near.key.member]
    moved = replace(me, hints=far.hints)
    await coordinator.publish(moved, version=2)
    assert [peer.member for peer in await coordinator.peers(me, 1)] == [far.key.member]


async def test_equal_weights_are_kept_while_any_of_their_members_remains(coordinator):
    one, other = fleet.device(0), replace(fleet.device(1), weights=fleet.device(0).weights)
    for device in (one, other):
        await coordinator.service.join(device.key)
        await coordinator.publish(device)
    await coordinator.service.leave(one.key)
    assert coordinator.files == {sha256(other.weights).hexdigest()}
    await coordinator.service.leave(other.key)
    assert coordinator.files == set()


async def test_a_member_that_left_is_not_a_peer_and_may_return(coordinator):
    me, peer = await coordinator.enter(0, 1)
    for _ in range(2):
        await coordinator.service.leave(peer.key)
    assert await coordinator.peers(me, 5) == {}
    assert coordinator.files == {sha256(me.weights).hexdigest()}
    with pytest.raises(MistifyError, match="join"):
        await coordinator.publish(peer)
    await coordinator.enter(1)
    assert len(await coordinator.peers(me, 5)) == 1


async def test_silent_members_expire_and_calling_members_do_not(coordinator, clock):
    me, silent = await coordinator.enter(0, 1)
    for _ in range(3):
        clock.now += 0.4 * LEASE_SECONDS
        await coordinator.service.forget_silent()
        actual = await coordinator.peers(me, 5)
    assert actual == {}
    assert coordinator.files == {sha256(me.weights).hexdigest()}
    with pytest.raises(MistifyError) as caught:
        await coordinator.publish(silent, version=2)
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_a_silent_fleet_expires_in_small_steps(coordinator, clock):
    await coordinator.enter(*range(45))
    clock.now += 1.1 * LEASE_SECONDS
    left = []
    for more in (True, True, False):
        assert await coordinator.service.forget_silent() is more
        left.append(len(coordinator.store.tuning.publications(fleet.GROUP)))
    assert left == [25, 5, 0]
    assert coordinator.files == set()


async def test_a_fleet_expires_even_without_calls(coordinator, clock, tmp_path, wait_until):
    clock.now = time.time()
    await coordinator.enter(30)
    clock.now -= 1.1 * LEASE_SECONDS
    await coordinator.enter(*range(25))
    with running(tmp_path / "store"):
        await wait_until(lambda: len(coordinator.files) == 1)
    assert len(coordinator.store.tuning.publications(fleet.GROUP)) == 1


async def test_everything_survives_a_restart(coordinator, storage, clock):
    me, peer = await coordinator.enter(0, 1)
    coordinator.store.weights.put(b"of an upload that a crash has cut off", ".weights")
    restarted = TuningService(coordinator.store, storage, clock)
    restarted.sweep()
    assert coordinator.files == {sha256(device.weights).hexdigest() for device in (me, peer)}
    again = replace(coordinator, service=restarted)
    assert [actual.member for actual in await again.peers(me, 5)] == [peer.key.member]
    assert (await restarted.join(peer.key)).version == 1


async def test_joining_returns_the_correlation_settings(coordinator):
    device = fleet.device(0)
    membership = await coordinator.service.join(device.key)
    assert (membership.member, membership.version) == (device.key.member, 0)
    assert (membership.correlation, membership.settings) == ("spatiotemporal", fleet.SETTINGS)
    with pytest.raises(MistifyError, match='no group "lions"') as unknown:
        await coordinator.service.join(replace(device.key, group="lions"))
    with pytest.raises(MistifyError, match="got 3 bytes; expected 32"):
        await coordinator.service.join(MemberKey(fleet.GROUP, b"abc"))
    assert unknown.value.code is ErrorCode.NOT_FOUND


async def test_errors_tell_strangers_to_join_and_members_to_publish(coordinator, device):
    stranger = fleet.device(9)
    for call in (coordinator.publish(stranger), coordinator.peers(stranger, 1)):
        with pytest.raises(MistifyError, match="not a member") as caught:
            await call
        assert caught.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(MistifyError, match="publish a model first"):
        await coordinator.peers(device, 1)


async def test_publications_of_a_removed_group_are_swept(coordinator, clock, wait_until):
    await coordinator.enter(0, 1)
    coordinator.store.tuning.remove_group(fleet.GROUP)
    clock.now += SWEEP_SECONDS
    watching = asyncio.create_task(coordinator.service.upkeep())
    await wait_until(lambda: not coordinator.files)
    watching.cancel()


async def test_a_recreated_group_has_no_earlier_members(coordinator):
    group = coordinator.store.tuning.group(fleet.GROUP)
    me, _ = await coordinator.enter(0, 1)
    coordinator.store.tuning.remove_group(fleet.GROUP)
    coordinator.store.tuning.add_group(group)
    await coordinator.service.join(me.key)
    await coordinator.publish(me)
    assert await coordinator.peers(me, 5) == {}


async def test_no_call_uses_the_database_on_the_event_loop(coordinator, clock):
    with kept_off_event_loops(Backend, "translated"):
        me, _peer, gone = await coordinator.enter(0, 1, 2)
        await coordinator.publish(replace(me, weights=fleet.device(5).weights), version=2)
        assert len(await coordinator.peers(me, 5)) == 2
        await coordinator.service.leave(gone.key)
        await coordinator.service.tidy()
        clock.now += 1.1 * LEASE_SECONDS
        await coordinator.service.join(me.key)
        assert not await coordinator.service.forget_silent()
        assert await coordinator.peers(me, 5) == {}
