"""The speed of this device, of a helper and of the link, from known times."""

import numpy as np
import pytest

from mistify.costs.quantization import Quantization
from mistify.errors import MistifyError
from mistify.package.blocks import BLOCKS, BlockStore, BlockVariant
from mistify.package.cuts import worthwhile_starts
from mistify.package.manifest import Manifest, TensorInfo
from mistify.package.opened import Package
from mistify.package.records import describe_file
from mistify.v1 import lending_pb2 as pb
from mistify_client.lending.answers import wrong_output
from mistify_client.lending.cuts import Cut, cuts_of
from mistify_client.lending.links import Exchange, HelperSpeed, Link
from mistify_client.lending.opening import block_network
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.speed import LocalSpeed
from mistify_client.lending.tensors import (
    checked_contents,
    narrow_message_of,
    rounded_message_of,
    sent_bytes,
)
from tests.support.paths import DATA


def test_a_link_is_assumed_to_be_fast_until_it_is_measured() -> None:
    assert (Link().round_trip_ms, 100_000 * Link().byte_ms) == pytest.approx((0.3, 1.0 + 0.2))


def test_the_bandwidth_is_that_of_the_helper_s_clock_and_the_round_trip_has_no_waiting() -> None:
    link = Link()
    for waiting_ms in (0, 20, 7, 0.5, 40):
        link.observe(Exchange(50_000, 1_000, 10.2 + 0.4 + 5 + waiting_ms, 5.0, 10.0))
    assert link.byte_ms == pytest.approx(10 / 50_000)
    assert link.round_trip_ms == pytest.approx(0.4)


def test_small_messages_say_nothing_about_the_bandwidth() -> None:
    link = Link()
    link.observe(Exchange(50_000, 0, 10.5, 0.0, 10.0))
    link.observe(Exchange(5_000, 0, 400.0, 0.0, 399.0))
    assert link.byte_ms == pytest.approx(10 / 50_000)


def test_messages_without_a_measured_transfer_say_nothing_about_the_bandwidth() -> None:
    link = Link()
    link.observe(Exchange(50_000, 0, 10.5, 0.0, 10.0))
    link.observe(Exchange(50_000, 0, 10.4, 0.0, None))
    assert (link.byte_ms, link.round_trip_ms) == pytest.approx((10 / 50_000, 0.4))


def test_a_link_that_becomes_slow_is_noticed_after_three_messages() -> None:
    link = Link()
    for transfer_ms in (1.0, 1.0, 1.0, 50.0, 50.0, 50.0):
        link.observe(Exchange(50_000, 0, transfer_ms + 0.5, 0.0, transfer_ms))
    assert link.byte_ms == pytest.approx(50 / 50_000)


def test_a_message_shows_that_the_link_has_changed() -> None:
    link, shown = Link(), []
    for transfer_ms in (10.0, 11.0, 50.0, 50.0, 50.0, 30.0):
        link.observe(Exchange(50_000, 0, transfer_ms + 0.5, 0.0, transfer_ms))
        shown.append(link.has_changed)
    assert shown == [False, False, True, True, False, True]


def test_an_inference_shows_that_a_helper_has_changed() -> None:
    speed, shown = HelperSpeed([1.0, 2.0]), []
    for computing_ms in (3.0, 3.3, 6.0, 6.0, 6.0):
        speed.observe(0, 2, computing_ms, computing_ms)
        shown.append(speed.has_changed)
    assert shown == [False, False, True, True, False]


def test_the_speed_of_a_helper_is_measured_with_whichever_blocks_it_runs() -> None:
    speed = HelperSpeed([1.0, 2.0, 3.0])
    assert (speed.segment_ms, speed.overhead_ms) == ((1.0, 2.0, 3.0), 0.0)
    for start, end in ((2, 3), (0, 2), (0, 2)):
        speed.observe(start, end, computing_ms=6.0, serving_ms=6.4)
    assert speed.segment_ms == pytest.approx((2.0, 4.0, 6.0))
    assert speed.overhead_ms == pytest.approx(0.4)


def test_short_segments_say_nothing_about_the_speed_of_a_helper() -> None:
    """A probe of the last segment, after a pause, would make the whole network look slow."""
    speed = HelperSpeed([10.0, 20.0, 0.1])
    for _ in range(5):
        speed.observe(2, 3, 0.3, 0.7)
    assert speed.segment_ms == (10.0, 20.0, 0.1)
    assert speed.overhead_ms == pytest.approx(0.4)
    speed.observe(1, 3, 40.2, 41.0)
    assert speed.segment_ms == pytest.approx((20.0, 40.0, 0.2))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_speed_of_this_device_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    speed = LocalSpeed(3.5, [1.0, 3.0], clock)
    assert (speed.predicted_ms, speed.ratio, speed.idle_ms) == (3.5, 1.0, (1.0, 3.0))
    for _ in range(4):
        speed.observe(10.5)
    assert (speed.predicted_ms, speed.ratio) == (10.5, 3.0)
    clock.now = 10.0
    assert speed.age == 10.0
    speed.observe(3.5)  # once is enough if the others are old
    assert (speed.predicted_ms, speed.age) == (3.5, 0.0)


def test_the_slowest_of_several_checks_counts() -> None:
    """A device that has waited for a helper runs at once, even if it is busy."""
    clock = Clock()
    speed = LocalSpeed(3.5, [1.0, 3.0], clock)
    clock.now = 3.0
    speed.observe(10.5)
    clock.now = 4.0
    speed.observe_check(4.0)
    assert (speed.ratio, speed.has_changed, speed.age) == (3.0, True, 0.0)
    speed.observe_check(16.0)
    assert (speed.ratio, speed.has_changed) == (4.0, False)
    speed.observe_check(4.0)
    assert (speed.ratio, speed.has_changed) == (4.0, True)
    for _ in range(2):
        speed.observe_check(4.8)
    assert (speed.ratio, speed.has_changed) == (pytest.approx(1.2), False)
    clock.now = 10.0
    speed.observe(7.0)  # on this device alone
    assert (speed.ratio, speed.has_changed) == (2.0, False)


def store_and_blocks() -> tuple[BlockStore, tuple[BlockVariant, ...]]:
    store = BlockStore.load(DATA / "blocks")
    return store, store.network_of(store.served)


def test_cuts_before_larger_tensors_are_left_out() -> None:
    """The input has 8 x 8 x 3 floats, the next tensors 8 x 8 x 8, and the pooled one 2 x 2 x 8."""
    store, blocks = store_and_blocks()
    starts = worthwhile_starts(store, blocks)
    network = BlockNetwork(DATA / "blocks", store, blocks, starts)
    assert starts == (0, 3)
    assert [len(segment) for segment in network.segments] == [3, 1]
    assert cuts_of(network) == (Cut(0, 768), Cut(1, 128))


def test_tensors_that_do_not_fit_into_a_message_are_not_sent() -> None:
    store, blocks = store_and_blocks()
    large = TensorInfo(name="image", dtype="float32", shape=(-1, 4096, 4096, 3))
    network = BlockNetwork(DATA, store.model_copy(update={"inputs": (large,)}), blocks, (0, 3))
    assert cuts_of(network) == (Cut(1, 128),)


def test_numbers_are_sent_as_bytes_only_if_nothing_is_lost() -> None:
    info = TensorInfo(name="image", dtype="float32", shape=(-1, 2, 3))
    values = np.array([[[0, 255, 3], [4, 5, 6]]], np.float32)
    message = narrow_message_of(values)
    assert (message.in_bytes, message.content) == (True, bytes([0, 255, 3, 4, 5, 6]))
    assert checked_contents([message], [info]) == [values.tobytes()]
    assert sent_bytes({"image": values}) == 6
    for wrong in (0.5, -1, 256, float("nan"), float("inf")):
        other = np.where(values == 6, np.float32(wrong), values)
        assert not narrow_message_of(other).in_bytes
        assert sent_bytes({"image": other}) == 24
    message.content += b"1"
    with pytest.raises(MistifyError, match="image has 7 bytes; expected 6"):
        checked_contents([message], [info])


def test_rounded_numbers_arrive_as_the_nearest_of_256() -> None:
    info = TensorInfo(name="features", dtype="float32", shape=(-1, 2, 3))
    values = np.array([[[-1, 0, 3], [0.5, 1.004, 1.997]]], np.float32)
    message = rounded_message_of(values)
    assert list(message.content) == [0, 64, 255, 96, 128, 191]
    (content,) = checked_contents([message], [info])
    expected = -1 + np.array([0, 64, 255, 96, 128, 191]) * 4 / 255
    np.testing.assert_allclose(np.frombuffer(content, np.float32), expected, atol=1e-6)
    endless = np.where(values == 3, np.float32(np.inf), values)
    assert checked_contents([rounded_message_of(endless)], [info]) == [endless.tobytes()]


@pytest.mark.parametrize(
    ("dtype", "rounding", "reason"),
    [
        ("float32", {"step": float("nan")}, "not finite"),
        ("float32", {"step": -1.0}, "not finite"),
        ("float32", {"step": 3e38}, "not finite"),
        ("float32", {"step": 1.0, "least": float("inf")}, "not finite"),
        ("int8", {"step": 1.0}, "features is rounded, but it is int8; only float32 can be"),
    ],
)
def test_rounded_numbers_that_mean_nothing_are_refused(dtype, rounding, reason) -> None:
    info = TensorInfo(name="features", dtype=dtype, shape=(-1, 3))
    message = rounded_message_of(np.array([[0, 1, 2]], np.float32))
    message.rounding.CopyFrom(pb.Rounding(**rounding))
    with pytest.raises(MistifyError, match=reason):
        checked_contents([message], [info])


def test_tensors_are_rounded_at_the_cuts_that_lose_little_enough(float_package) -> None:
    """Position 1 is no cut worth having."""
    store = BlockStore.load(float_package)
    measured = store.model_copy(update={"rounding_losses": {1: 0.0, 3: 0.004}})
    (float_package / BLOCKS).write_bytes(measured.as_file())
    manifest = Manifest.load(float_package)
    files = manifest.files | {BLOCKS: describe_file(float_package / BLOCKS)}
    manifest.model_copy(update={"files": files}).save(float_package)
    package = Package.open(float_package)
    for rounding_loss, size in ((0.0, 128), (0.003, 128), (0.004, 32), (1.0, 32)):
        network = block_network(package, rounding_loss=rounding_loss)
        assert cuts_of(network) == (Cut(0, 768), Cut(1, size))
        assert [network.sent_bytes(cut) for cut in range(3)] == [768, size, 20]


OUTPUTS = (TensorInfo(name="scores", dtype="float32", shape=(-1, 3)),)
INTEGERS = (TensorInfo(name="scores", dtype="int8", shape=(-1, 3), scale=0.1, zero_point=0),)


@pytest.mark.parametrize(
    ("given", "is_right"),
    [
        ([[1, -200, 3]], True),
        ([[1.1, -200, 3]], True),
        ([[1.3, -200, 3]], False),
        ([[1, float("nan"), 3]], False),
    ],
)
def test_floats_may_differ_by_rounding_of_the_largest(given, is_right) -> None:
    own = {"scores": np.array([[1, -200, 3]], np.float32)}
    answer = {"scores": np.array(given, np.float32)}
    wrong = wrong_output(answer, own, OUTPUTS, Quantization.NONE)
    assert wrong == (None if is_right else "scores")


@pytest.mark.parametrize(("difference", "is_right"), [(0.9, True), (1.3, False)])
def test_rounded_numbers_may_differ_by_one_step(difference, is_right) -> None:
    own = {"scores": np.array([[0, 2, 255]], np.float32)}
    answer = {"scores": own["scores"] + np.array([[0, difference, 0]], np.float32)}
    assert (wrong_output(answer, own, OUTPUTS, Quantization.NONE, is_rounded=True) is None) == is_right


@pytest.mark.parametrize(
    ("given", "is_right"), [([[1, 2, 4]], True), ([[1, 2, 5]], False), ([[-127, 2, 3]], False)]
)
def test_integers_may_differ_by_one_step(given, is_right) -> None:
    own = {"scores": np.array([[127 if given[0][0] < 0 else 1, 2, 3]], np.int8)}
    wrong = wrong_output({"scores": np.array(given, np.int8)}, own, INTEGERS, Quantization.INT8)
    assert wrong == (None if is_right else "scores")
