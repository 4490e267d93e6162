import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.errors import ErrorCode, MistifyError
from mistify_client.rpc.retry import Backoff, resumed, retried

AWAY = MistifyError(ErrorCode.UNAVAILABLE, "away")


def test_delays_double_up_to_the_longest(backoff, waits):
    for failures in range(1, 6):
        backoff.pause(AWAY, failures)
    assert waits.delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6])
    Backoff(longest=0.3, wait=waits, rng=lambda: 1.0).pause(AWAY, 40)
    assert waits.delays[-1] == 0.3


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 40))
def test_jitter_keeps_at_least_half_of_the_delay(share, failures):
    delays = []
    full = min(10.0, 0.1 * 2.0 ** (failures - 1))
    Backoff(wait=delays.append, rng=lambda: share).pause(AWAY, failures)
    assert full / 2 <= delays[0] <= full


def test_gives_up_after_its_attempts(backoff, waits):
    def fail() -> None:
        raise AWAY

    with pytest.raises(MistifyError, match="away"):
        retried(fail, backoff)
    assert len(waits.delays) == backoff.attempts


def test_other_failures_are_not_tried_again(backoff, waits):
    def fail() -> None:
        raise MistifyError(ErrorCode.NOT_FOUND, "no such job")

    with pytest.raises(MistifyError, match="no such job"):
        retried(fail, backoff)
    assert waits.delays == []


def test_a_message_starts_the_count_of_failures_anew(waits):
    def one_at_a_time(position: int):
        if position < 5:
            yield position
            raise AWAY

    stream = resumed(one_at_a_time, 0, lambda _, n: n + 1, Backoff(attempts=1, wait=waits))
    assert list(stream) == [0, 1, 2, 3, 4]
    assert len(waits.delays) == 5
