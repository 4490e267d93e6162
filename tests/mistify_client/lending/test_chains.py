"""The best chain of devices, against all chains with random times."""

from itertools import groupby, product
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify_client.lending.chains import ChainTimes, HelperTimes, Part


def random_times(seed: int, segments: int, helpers: int) -> ChainTimes:
    """Return times in which no device is best for everything, and some tensors cannot be sent."""
    rng = np.random.default_rng(seed)
    sizes = [None if rng.random() < 0.15 else int(size) for size in rng.integers(1, 1000, segments)]
    return ChainTimes(
        rng.exponential(10.0, segments).tolist(),
        {
            f"helper-{number}": HelperTimes(
                rng.exponential(1.0), rng.exponential(0.005), rng.exponential(5.0, segments).tolist()
            )
            for number in range(helpers)
        },
        (*sizes, 10),
    )


def milliseconds(times: ChainTimes, devices: tuple[str | None, ...]) -> float:
    """Return the time if each segment runs on the device that is named for it."""
    total, segment = 0.0, 0
    for device, run in groupby(devices):
        end = segment + len(list(run))
        if device is None:
            total += sum(times.local_ms[segment:end])
        else:
            helper = times.helpers[device]
            sent, received = times.sizes[segment], times.sizes[end]
            if sent is None or received is None:
                return inf
            total += helper.fixed_ms + helper.byte_ms * (sent + received)
            total += sum(helper.segment_ms[segment:end])
        segment = end
    return total


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3))
def test_no_other_chain_with_helpers_takes_less_time(seed, segments, helpers) -> None:
    times = random_times(seed, segments, helpers)
    ways = product((None, *times.helpers), repeat=segments)
    least = min(milliseconds(times, way) for way in ways if set(way) != {None})
    chain = times.best_chain()
    assert bool(chain) == (least < inf)
    if chain:
        covered = [segment for part in chain for segment in range(part.start, part.end)]
        assert covered == list(range(segments))
        devices = tuple(part.helper for part in chain for _ in range(part.start, part.end))
        assert milliseconds(times, devices) == pytest.approx(least)
        assert times.chain_ms(chain) == pytest.approx(least)


#: The near helper has a fast link and the far one a fast processor. The tensors become small at cut 1.
NEAR_AND_FAR = {
    "near": HelperTimes(1.0, 1e-4, [8.0, 8.0, 8.0]),
    "far": HelperTimes(2.0, 1e-2, [1.0, 1.0, 1.0]),
}


def test_a_helper_with_a_fast_link_makes_tensors_small_for_one_with_a_fast_processor() -> None:
    times = ChainTimes([50.0] * 3, NEAR_AND_FAR, (10_000, 100, 100, 10))
    chain = times.best_chain()
    assert chain == (Part("near", 0, 1), Part("far", 1, 3))
    assert [*map(times.part_ms, chain)] == pytest.approx([1 + 1.01 + 8, 2 + 1.1 + 2])


def test_this_device_runs_what_no_helper_runs_faster() -> None:
    times = ChainTimes([1.0, 50.0, 1.0], NEAR_AND_FAR, (10_000, 100, 100, 10_000))
    assert times.best_chain() == (Part(None, 0, 1), Part("far", 1, 2), Part(None, 2, 3))


@pytest.mark.parametrize("sizes", [(None, None, None, 10), (5, None, None, None)])
def test_there_is_no_chain_if_nothing_can_be_sent_or_nobody_can_be_asked(sizes) -> None:
    assert ChainTimes([50.0] * 3, NEAR_AND_FAR, sizes).best_chain() == ()
    assert ChainTimes([50.0] * 3, {}, (5, 5, 5, 5)).best_chain() == ()
