"""The client with a real coordinator, including broken connections."""

from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify.package.weights import write_weights
from mistify.v1 import tuning_pb2 as pb
from mistify.v1.porting_pb2 import ErrorInfo
from mistify.v1.tuning_pb2_grpc import TuningStub
from mistify.wire import tuning as wire
from mistify.wire.limits import ERROR_METADATA
from mistify.wire.porting import error_from_proto
from mistify_client.rpc.retry import Backoff
from mistify_client.rpc.tuning import TuningClient, describe
from tests.mistify_client.coordinators import BreakingProxy, running

#: A small chunk size, so that weights take many messages.
WIDTH = 60_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def package(store):
    return fleet.prepare(store, WIDTH)


@pytest.fixture
def address(store, package):
    with running(store) as bound:
        yield bound


@pytest.fixture
def client(address, backoff):
    with TuningClient(address, backoff=backoff) as opened:
        yield opened


def enter(client, package, number, version=1):
    device = fleet.device(number, WIDTH)
    client.join(device.key)
    client.publish(device.key, described(package, device, version), device.weights)
    return device


def described(package, device, version=1):
    return describe(package, device.weights, version=version, loss=0.5, accuracy=0.75, hints=device.hints)


def test_models_are_exchanged_between_devices(client, package, tmp_path):
    me, *others = (enter(client, package, number) for number in range(3))
    files = list(client.peers(me.key, 5, tmp_path / "peers"))
    assert {(file.peer.member, file.path.read_bytes()) for file in files} == {
        (other.key.member, other.weights) for other in others
    }
    client.leave(others[0].key)
    assert [file.peer.member for file in client.peers(me.key, 5, tmp_path / "peers")] == [
        others[1].key.member
    ]
    assert len(list((tmp_path / "peers").iterdir())) == 1  # the weights of the device that left are removed
    assert client.join(me.key).version == 1


def test_refusals_arrive_with_their_problems(client, package):
    device = fleet.device(0, WIDTH)
    client.join(device.key)
    broken = {name: values * np.float32("nan") for name, values in fleet.tuned(0, WIDTH).items()}
    device = replace(device, weights=write_weights(broken))
    with pytest.raises(MistifyError) as caught:
        client.publish(device.key, described(package, device), device.weights)
    assert caught.value.code is ErrorCode.INVALID_PUBLICATION
    assert [problem.place for problem in caught.value.problems] == [
        "weights['dense/kernel']", "weights['dense/bias']",
    ]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("limits", [[300_000], [100, 5_000, 900_000]])
def test_the_download_of_peers_resumes_where_the_connection_broke(address, client, package, tmp_path, limits):
    backoff = Backoff(attempts=20)
    me, *others = (enter(client, package, number) for number in range(4))
    proxy = BreakingProxy(address, list(limits))
    proxy.break_off.set()
    with proxy.running() as broken, TuningClient(broken, backoff=backoff) as unlucky:
        files = list(unlucky.peers(me.key, 5, tmp_path / "peers"))
    assert proxy.connections > 1
    assert sorted(file.path.read_bytes() for file in files) == sorted(other.weights for other in others)


def test_a_peer_received_before_the_connection_broke_is_yielded_only_once(address, client, package, tmp_path):
    me, *others = (enter(client, package, number) for number in range(4))
    proxy = BreakingProxy(address, [int(1.5 * len(me.weights))])
    with proxy.running() as broken, TuningClient(broken, backoff=Backoff(attempts=20)) as unlucky:
        peers = unlucky.peers(me.key, 5, tmp_path / "peers")
        first = next(peers)
        proxy.break_off.set()
        files = [first, *peers]
    assert proxy.connections > 1
    assert sorted(file.path.read_bytes() for file in files) == sorted(other.weights for other in others)


def test_an_interrupted_publication_is_sent_again(address, client, package, backoff, waits):
    waits.real = True
    device = fleet.device(0, WIDTH)
    client.join(device.key)
    proxy = BreakingProxy(address, [120])
    proxy.break_off.set()
    with proxy.running() as broken, TuningClient(broken, backoff=backoff) as unlucky:
        unlucky.publish(device.key, described(package, device), device.weights)
    assert proxy.connections > 1
    assert client.join(device.key).version == 1


def test_a_restarted_coordinator_still_has_all_members(store, package, backoff, tmp_path):
    with running(store) as address, TuningClient(address, backoff=backoff) as client:
        me, other = (enter(client, package, number) for number in range(2))
    with running(store) as address, TuningClient(address, backoff=backoff) as client:
        (actual,) = client.peers(me.key, 5, tmp_path / "peers")
    assert actual.path.read_bytes() == other.weights


def test_damaged_weights_are_downloaded_again_once(client, package, tmp_path):
    me, other = (enter(client, package, number) for number in range(2))
    name = described(package, other).sha256
    part = tmp_path / "peers" / f"{name}.weights.part"
    part.parent.mkdir()
    part.write_bytes(b"something else")
    (actual,) = client.peers(me.key, 5, part.parent)
    assert actual.path.read_bytes() == other.weights


@pytest.mark.parametrize("harm", [lambda content: content[:-9], lambda content: content[:-1] + b"?"])
def test_weights_damaged_on_the_disk_are_downloaded_again(client, package, tmp_path, harm):
    me, other = (enter(client, package, number) for number in range(2))
    (file,) = client.peers(me.key, 5, tmp_path / "peers")
    file.path.write_bytes(harm(other.weights))
    (file,) = client.peers(me.key, 5, tmp_path / "peers")
    assert file.path.read_bytes() == other.weights


def test_permanently_damaged_weights_are_refused(client, package, store, tmp_path):
    me, other = (enter(client, package, number) for number in range(2))
    name = described(package, other).sha256
    (kept,) = (store / "weights").glob(f"??/{name}.weights")
    kept.write_bytes(b"\0" * len(other.weights))
    with pytest.raises(MistifyError, match="twice") as caught:
        list(client.peers(me.key, 5, tmp_path / "peers"))
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert list((tmp_path / "peers").iterdir()) == []


def test_calls_without_the_token_are_refused(store, package, backoff):
    device = fleet.device(0, WIDTH)
    with running(store, token="s3cret") as address:  # noqa: S106
        with TuningClient(address, token="s3cret", backoff=backoff) as client:  # noqa: S106
            client.join(device.key)
        with TuningClient(address, backoff=backoff) as stranger:
            for call in (
                lambda: stranger.join(device.key),
                lambda: stranger.publish(device.key, described(package, device), device.weights),
                lambda: list(stranger.peers(device.key, 1, store)),
                lambda: stranger.leave(device.key),
            ):
                with pytest.raises(MistifyError) as caught:
                    call()
                assert caught.value.code is ErrorCode.UNAUTHENTICATED


def header(package, **changes):
    device = fleet.device(0, WIDTH)
    publication = wire.publication_to_proto(described(package, device))
    for field, value in changes.items():
        setattr(publication, field, value)
    return pb.PublishRequest(
        header=pb.PublishHeader(key=wire.key_to_proto(device.key), publication=publication)
    )


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("requests", "reported"),
    [
        (lambda package: [], "the first message of an upload has to be its header"),
        (lambda package: [pb.PublishRequest(data=b"x")], "has to be its header"),
        (lambda package: [header(package), header(package)], "bytes"),
        (lambda package: [header(package), pb.PublishRequest(data=bytes(2**20))], "more than"),
        (lambda package: [header(package)], "0 bytes"),
        (lambda package: [header(package, size=2**62)], "size: got"),
        (lambda package: [header(package, size=-1)], "size: got"),
        (lambda package: [header(package, sha256="/etc/passwd")], "64 hex digits"),
        (lambda package: [pb.PublishRequest(header=pb.PublishHeader())], "not a member"),
    ],
)
def test_malformed_uploads_are_refused_and_the_server_continues(  # noqa: PLR0917
    address, client, package, store, requests, reported
):
    client.join(fleet.device(0, WIDTH).key)
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
        TuningStub(channel).Publish(iter(requests(package)), timeout=60)
    attached = dict(caught.value.trailing_metadata())[ERROR_METADATA]
    assert reported in str(error_from_proto(ErrorInfo.FromString(attached)))
    assert not list((store / "weights").glob("??/*"))
    enter(client, package, 0)


def test_invalid_messages_are_refused_and_the_server_continues(address, client, package):
    with grpc.insecure_channel(address) as channel:
        for method in ("Publish", "Join"):
            call = channel.stream_unary if method == "Publish" else channel.unary_unary
            raw = call(f"/mistify.v1.Tuning/{method}")
            inputs = iter([b"\xff" * 100]) if method == "Publish" else b"\xff" * 100
            with pytest.raises(grpc.RpcError):
                raw(inputs, timeout=60)
    enter(client, package, 0)
