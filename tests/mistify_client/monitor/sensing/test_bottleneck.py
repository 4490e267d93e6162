"""Diagnosis of slow inferences: would a smaller network help, or is the time lost elsewhere?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify_client.monitor.sensing.bottleneck import Cause, FixedTime, Timing, diagnose


def timing(
    expected_ms: float, latency_ms: float, computing_ms: float = 0.0, before_ms: float = 0.0
) -> Timing:
    return Timing(expected_ms, latency_ms, computing_ms or latency_ms, before_ms)


def after(*measurements: tuple[float, float]) -> float | None:
    """Return the fixed time after measurements, each given as expected and measured ms."""
    fixed = FixedTime()
    for expected_ms, latency_ms in measurements:
        fixed.observe(timing(expected_ms, latency_ms))
    return fixed.fixed_ms


@given(st.floats(0, 100), st.floats(0.1, 10), st.sampled_from([(10.0, 5.0), (5.0, 10.0), (4.0, 25.0)]))
def test_the_fixed_time_is_found_from_two_networks(fixed_ms, slope, sizes):
    first, second = ((size, fixed_ms + slope * size) for size in sizes)
    assert after(first, first, second, second) == pytest.approx(fixed_ms, abs=1e-6)


@pytest.mark.parametrize(
    "measurements",
    [
        [(10, 30), (10, 30), (10, 30)],
        [(10, 30), (5, 25), (5, 25)],  # the larger network ran only once, perhaps while conditions changed
        [(10, 12), (10, 30), (5, 25), (5, 25)],
        [(10, 30), (10, 30), (5, 25), (5, 40), (5, 40)],
        [(10, 30), (10, 30), (5, 40), (5, 40)],  # a smaller network cannot be slower: conditions changed
    ],
)
def test_the_fixed_time_is_unknown_if_conditions_change_or_only_one_network_ran(measurements):
    assert after(*measurements) is None


def test_the_fixed_time_is_discarded_only_when_latencies_improve():
    known = [(10, 30), (10, 30), (5, 25), (5, 25)]
    assert after(*known, (5, 60), (5, 24)) == 20
    assert after(*known, (5, 15)) is None


@pytest.mark.parametrize(
    ("measured", "fixed_ms", "cause", "helps"),
    [
        (timing(5, 25, 24), None, Cause.NETWORK, True),
        (timing(5, 25, 24), 9, Cause.NETWORK, True),
        (timing(5, 25, 24), 11, Cause.FIXED, False),
        (timing(5, 25, 6), None, Cause.WAITING, False),
        (timing(5, 12, 3), None, Cause.WAITING, True),  # it waits for 9 ms
        (timing(5, 25, 6), 9, Cause.WAITING, True),  # other networks showed a shorter wait
        (timing(5, 5, 5, before_ms=6), None, Cause.CALLS, False),
        (timing(5, 9.5, 5, before_ms=0.1), None, None, None),
        (timing(5, 9.5, 9, before_ms=0.6), None, Cause.NETWORK, True),  # overhead of any call
    ],
)
def test_a_smaller_network_helps_if_the_fixed_time_is_below_the_target(measured, fixed_ms, cause, helps):
    diagnosis = diagnose(measured, fixed_ms, 10.0)
    assert (diagnosis and diagnosis.cause, diagnosis and diagnosis.smaller_helps) == (cause, helps)


def test_no_latency_is_too_high_without_a_target():
    assert diagnose(timing(5, 1e6), 1e6, None) is None
