"""Publications of weights: accepted, refused, and interrupted."""

import asyncio
import threading
import zlib
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import safetensors.numpy

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify.package.weights import write_weights
from mistify.peers.hints import Hints, Location
from mistify_server.store.artifacts import Artifacts
from mistify_server.tuning.packages import PublishedModels
from mistify_server.tuning.service import TuningService


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


async def test_a_repeated_publication_is_accepted_and_an_older_version_refused(coordinator, device):
    await coordinator.publish(device, version=3)
    await coordinator.publish(device, version=3)
    other = with_weights(device, **{"dense/bias": np.ones(3, np.float32)})
    for version in (3, 2):
        _, text = await refused(coordinator, other, ErrorCode.CONFLICT, version=version)
        assert "is stale; expected a version above 3" in text


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
