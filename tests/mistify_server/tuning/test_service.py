"""The coordinator: accepting and refusing publications, finding peers, and expiring members."""

import asyncio
import os
import signal
import threading
import time
import zlib
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import safetensors.numpy

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify.package.weights import write_weights
from mistify.peers.correlation import correlation
from mistify.peers.hints import Hints, Location
from mistify.peers.membership import MemberKey
from mistify_server.store.artifacts import Artifacts
from mistify_server.store.directory import open_store
from mistify_server.tuning.packages import PublishedModels
from mistify_server.tuning.service import LEASE_SECONDS, SWEEP_SECONDS, TuningService
from mistify_server.tuning.storage import IndexStorage
from tests.mistify_client.coordinators import running


async def refused(coordinator, device, code=ErrorCode.INVALID_PUBLICATION, **changes):
    """Return the places and the text of a refusal, asserting that nothing was stored."""
    files = coordinator.files
    before = coordinator.store.tuning.publications(fleet.GROUP)
    with pytest.raises(MistifyError) as caught:
        await coordinator.publish(device, **changes)
    assert caught.value.code is code, caught.value
    assert coordinator.store.tuning.publications(fleet.GROUP) == before
    assert coordinator.files == files
    return [problem.place for problem in caught.value.problems], str(caught.value)


def with_weights(device, **changes):
    """Return the device with some weights changed."""
    weights = {**fleet.tuned(0), **changes}
    kept = {name: values for name, values in weights.items() if values is not None}
    return replace(device, weights=write_weights(kept))


def with_integers(device, name):
    """Return the device with some weights sent as integers, which `write_weights` never does."""
    integers = {**fleet.tuned(0), name: np.zeros(3, np.int32)}
    data = safetensors.numpy.save(integers)
    return replace(device, weights=zlib.compress(data[0::2] + data[1::2]))


@pytest.fixture
async def device(coordinator):
    device = fleet.device(0)
    coordinator.service.join(device.key)
    return device


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
        coordinator.service.join(device.key)
        await coordinator.publish(device)
    coordinator.service.leave(one.key)
    assert coordinator.files == {sha256(other.weights).hexdigest()}
    coordinator.service.leave(other.key)
    assert coordinator.files == set()


async def test_a_member_that_left_is_not_a_peer_and_may_return(coordinator):
    me, peer = await coordinator.enter(0, 1)
    for _ in range(2):
        coordinator.service.leave(peer.key)
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
        coordinator.service.forget_silent()
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
        assert coordinator.service.forget_silent() is more
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
    assert restarted.join(peer.key).version == 1


async def test_a_repeated_publication_is_accepted_and_an_older_version_refused(coordinator, device):
    await coordinator.publish(device, version=3)
    await coordinator.publish(device, version=3)
    other = with_weights(device, **{"dense/bias": np.ones(3, np.float32)})
    for version in (3, 2):
        _, text = await refused(coordinator, other, ErrorCode.CONFLICT, version=version)
        assert "is stale; expected a version above 3" in text


async def test_joining_returns_the_correlation_settings(coordinator):
    device = fleet.device(0)
    membership = coordinator.service.join(device.key)
    assert (membership.member, membership.version) == (device.key.member, 0)
    assert (membership.correlation, membership.settings) == ("spatiotemporal", fleet.SETTINGS)
    with pytest.raises(MistifyError, match='no group "lions"') as unknown:
        coordinator.service.join(replace(device.key, group="lions"))
    with pytest.raises(MistifyError, match="got 3 bytes; expected 32"):
        coordinator.service.join(MemberKey(fleet.GROUP, b"abc"))
    assert unknown.value.code is ErrorCode.NOT_FOUND


async def test_errors_tell_strangers_to_join_and_members_to_publish(coordinator, device):
    stranger = fleet.device(9)
    for call in (coordinator.publish(stranger), coordinator.peers(stranger, 1)):
        with pytest.raises(MistifyError, match="not a member") as caught:
            await call
        assert caught.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(MistifyError, match="publish a model first"):
        await coordinator.peers(device, 1)


@pytest.mark.parametrize(
    ("changes", "place", "reported"),
    [
        ({"dense/bias": np.full(3, np.nan, np.float32)}, "weights['dense/bias']", "3 NaN or infinite"),
        ({"dense/bias": np.float32([1, np.inf, 2])}, "weights['dense/bias']", "1 NaN or infinite"),
        ({"dense/bias": np.zeros(4, np.float32)}, "weights['dense/bias']", "the shape (4,); expected (3,)"),
        ({"dense/bias": None}, "weights['dense/bias']", "got nothing"),
        ({"other": np.zeros(1, np.float32)}, "weights['other']", "none of this name"),
        (
            {"dense/kernel": np.full((4, 3), 1e4, np.float32)},
            "weights['dense/kernel']",
            "a norm of 3.464e+04",
        ),
        ({"dense/kernel": np.zeros((4, 3), np.float32)}, "weights['dense/kernel']", "a norm of 0"),
    ],
)
async def test_unsuitable_weights_are_refused_with_the_reason(coordinator, device, changes, place, reported):
    places, text = await refused(coordinator, with_weights(device, **changes))
    assert places == [place]
    assert reported in text


async def test_weights_of_another_type_are_refused(coordinator, device):
    places, text = await refused(coordinator, with_integers(device, "dense/bias"))
    assert places == ["weights['dense/bias']"]
    assert "I32; expected F16 or F32" in text


async def test_half_precision_is_accepted(coordinator, device):
    half = {name: values.astype(np.float16) for name, values in fleet.tuned(0).items()}
    await coordinator.publish(replace(device, weights=write_weights(half)))


@pytest.mark.parametrize("content", [b"no safetensors", b"\xff" * 64, b"", b"\x08" + b"\0" * 7 + b"{}      "])
async def test_invalid_safetensors_files_are_refused(coordinator, device, content):
    await refused(coordinator, replace(device, weights=content))


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"size": 10}, "more than 10 bytes"),
        ({"size": 1000}, "expected 1,000, as announced"),
        ({"sha256": "0" * 64}, "expected " + "0" * 64),
        ({"size": 10**9}, "size: got 1,000,000,000 bytes"),
        ({"size": 0}, "size: got 0 bytes"),
        ({"sha256": "../../etc/passwd"}, "64 hex digits"),
        ({"loss": float("nan")}, "loss: got nan"),
        ({"accuracy": 1.5}, "accuracy: got 1.5"),
        ({"accuracy": float("nan")}, "accuracy: got nan"),
        ({"version": 0}, "version: got 0"),
    ],
)
async def test_uploads_that_differ_from_the_announcement_are_refused(coordinator, device, changes, reported):
    _, text = await refused(coordinator, device, **changes)
    assert reported in text


@pytest.mark.parametrize("field", ["job_id", "goal_id", "sha256"])
async def test_other_packages_are_refused(coordinator, device, field):
    package = replace(coordinator.package, **{field: "0" * 64})
    assert (await refused(coordinator, device, package=package))[0] == [f"package.{field}"]


def test_a_package_of_one_group_is_refused_in_another(coordinator):
    packages, group = PublishedModels(coordinator.store), coordinator.store.tuning.group(fleet.GROUP)
    assert packages.tunable(group, coordinator.package)
    with pytest.raises(MistifyError, match="the group's job"):
        packages.tunable(replace(group, name="others", job_id="another"), coordinator.package)


@pytest.mark.parametrize(
    ("hints", "place"),
    [
        (Hints(view_degrees=3), "hints.location"),
        (Hints(view_degrees=3, location=Location(latitude=1, longitude=1), labels=(1.0,)), "hints.labels"),
    ],
)
async def test_hints_that_the_group_does_not_use_are_refused(coordinator, device, hints, place):
    assert (await refused(coordinator, device, hints=hints))[0] == [place]


async def test_an_interrupted_upload_leaves_no_files(coordinator, device):
    async def chunks():
        yield device.weights[:20]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await coordinator.service.publish(device.key, coordinator.publication(device), chunks())
    assert coordinator.files == set()


class SlowFiles(Artifacts):
    """Files that block writes until they are released."""

    def __init__(self, directory):
        super().__init__(directory)
        self.asked, self.let_go, self.written = threading.Event(), threading.Event(), threading.Event()

    def put(self, content, suffix=None):
        content, suffix = content.read_bytes(), content.suffix
        self.asked.set()
        assert self.let_go.wait(60)
        name = super().put(content, suffix)
        self.written.set()
        return name


@pytest.fixture
def slow(coordinator, storage, clock, tmp_path):
    """Return the coordinator with slow files."""
    store = replace(coordinator.store, weights=SlowFiles(tmp_path / "store" / "weights"))
    yield replace(coordinator, store=store, service=TuningService(store, storage, clock))
    store.weights.let_go.set()


async def test_disconnecting_while_weights_are_written_leaves_no_files(slow, device):
    call = asyncio.create_task(slow.publish(device))
    await asyncio.to_thread(slow.store.weights.asked.wait, 60)
    call.cancel()
    for _ in range(5):
        await asyncio.sleep(0)  # the call notices it
    slow.store.weights.let_go.set()
    await asyncio.to_thread(slow.store.weights.written.wait, 60)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert slow.files == set()


async def test_publications_of_a_removed_group_are_swept(coordinator, clock, wait_until):
    await coordinator.enter(0, 1)
    coordinator.store.tuning.remove_group(fleet.GROUP)
    clock.now += SWEEP_SECONDS
    watching = asyncio.create_task(coordinator.service.watch_leases())
    await wait_until(lambda: not coordinator.files)
    watching.cancel()


async def test_incoming_uploads_are_not_swept(slow, device):
    digest = sha256(device.weights).hexdigest()
    Artifacts.put(slow.store.weights, device.weights, ".weights")
    call = asyncio.create_task(slow.publish(device))
    await asyncio.to_thread(slow.store.weights.asked.wait, 60)
    await slow.service.tidy()
    assert slow.files == {digest}
    slow.store.weights.let_go.set()
    await call
    assert slow.files == {digest}


async def test_a_recreated_group_has_no_earlier_members(coordinator):
    group = coordinator.store.tuning.group(fleet.GROUP)
    me, _ = await coordinator.enter(0, 1)
    coordinator.store.tuning.remove_group(fleet.GROUP)
    coordinator.store.tuning.add_group(group)
    coordinator.service.join(me.key)
    await coordinator.publish(me)
    assert await coordinator.peers(me, 5) == {}


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
            service.join(one.key)
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
        service.leave(gone.key)
        clock.now += 0.9 * LEASE_SECONDS
        service.join(me.key)
        clock.now += 0.2 * LEASE_SECONDS
        assert not service.forget_silent()
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
            assert coordinator.service.join(peer.key).version == 1
        finally:
            os.kill(process, signal.SIGCONT)
        assert [actual.member for actual in await call] == [peer.key.member]
