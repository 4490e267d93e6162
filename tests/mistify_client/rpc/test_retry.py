import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.errors import ErrorCode, MistifyError
from mistify_client.rpc.retry import Backoff, resumed, retried

AWAY = MistifyError(ErrorCode.UNAVAILABLE, "away")


def fail() -> None:
    raise AWAY


def test_delays_double_up_to_the_maximum(backoff, waits):
    with pytest.raises(MistifyError, match="away"):
        retried(fail, backoff)
    assert waits.delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
    assert Backoff(longest=0.3, rng=lambda: 1.0).delay(40) == 0.3
    assert Backoff(rng=lambda: 1.0).delay(10**6) == 10.0


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 40))
def test_jitter_keeps_at_least_half_of_the_delay(share, failures):
    full = min(10.0, 0.1 * 2.0 ** (failures - 1))
    assert full / 2 <= Backoff(rng=lambda: share).delay(failures) <= full


def test_a_call_is_given_up_after_the_maximum_number_of_attempts(backoff, waits):
    with pytest.raises(MistifyError, match="away"):
        retried(fail, backoff)
    assert len(waits.delays) == backoff.attempts


def test_other_failures_are_not_retried(backoff, waits):
    def refuse() -> None:
        raise MistifyError(ErrorCode.NOT_FOUND, "no such job")

    with pytest.raises(MistifyError, match="no such job"):
        retried(refuse, backoff)
    assert waits.delays == []


def test_a_message_resets_the_count_of_failures(waits):
    def one_at_a_time(position: int):
        if position < 5:
            yield position
            raise AWAY

    stream = resumed(one_at_a_time, 0, lambda _, n: n + 1, Backoff(attempts=1, wait=waits))
    assert list(stream) == [0, 1, 2, 3, 4]
    assert len(waits.delays) == 5


def test_a_stream_without_messages_is_given_up(waits):
    def broken(position: int):
        raise AWAY
        yield position

    with pytest.raises(MistifyError, match="away"):
        list(resumed(broken, 0, lambda position, _: position, Backoff(attempts=3, wait=waits)))
    assert len(waits.delays) == 3


def test_closing_a_stream_closes_the_underlying_one(waits):
    closed = []

    def endless(position: int):
        try:
            yield position
            raise AWAY
        finally:
            closed.append(position)

    stream = resumed(endless, 0, lambda position, _: position, Backoff(wait=waits))
    next(stream)
    stream.close()
    assert closed == [0]
    assert waits.delays == []
