"""What chains of helpers take longer than predicted."""

import pytest

from mistify_client.lending.chains import Part
from mistify_client.lending.corrections import CorrectionHistory

DRONE, CAR = "drone:7470", "car:7470"
WHOLE = (Part(DRONE, 0, 4),)
SECOND_HALF = (Part(None, 0, 2), Part(DRONE, 2, 4))
LAST = (Part(None, 0, 3), Part(DRONE, 3, 4))
BOTH = (Part(DRONE, 0, 3), Part(CAR, 3, 4))
BOTH_ELSEWHERE = (Part(DRONE, 0, 2), Part(CAR, 2, 4))
BOTH_TURNED = (Part(CAR, 0, 3), Part(DRONE, 3, 4))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def history(clock: Clock) -> CorrectionHistory:
    return CorrectionHistory(clock)


def add(history: CorrectionHistory, chain: tuple[Part, ...], *milliseconds: float) -> None:
    for each in milliseconds:
        history.add(chain, each)


def test_a_few_inferences_say_nothing_and_outliers_do_not_count(history: CorrectionHistory) -> None:
    add(history, WHOLE, 2, 3, 900, 1)
    assert history.corrections.of_chain(WHOLE) == 0
    add(history, WHOLE, 4)
    assert history.corrections.of_chain(WHOLE) == 3


def test_only_recent_inferences_count(history: CorrectionHistory, clock: Clock) -> None:
    add(history, WHOLE, *[5] * 5)
    clock.now = 30
    assert history.corrections.of_chain(WHOLE) == 5
    clock.now = 31
    assert history.corrections.of_chain(WHOLE) == 0


def test_nothing_is_held_against_a_cut_that_was_not_tried(history: CorrectionHistory) -> None:
    add(history, SECOND_HALF, *[9] * 5)
    add(history, WHOLE, *[2] * 5)
    corrections = history.corrections
    assert [corrections.of_chain(each) for each in (SECOND_HALF, WHOLE, LAST)] == [9, 2, 0]
    assert corrections.of_helper(DRONE) == 2
    assert corrections.of_chain((Part(CAR, 0, 4),)) == corrections.of_helper(CAR) == 0


@pytest.mark.parametrize(("difference", "counted"), [(-9, 0), (9, 9)])
def test_what_a_helper_saves_alone_is_not_expected_of_a_chain_but_what_it_wastes_is(
    history: CorrectionHistory, difference: float, counted: float
) -> None:
    add(history, LAST, *[difference] * 5)
    assert history.corrections.of_chain(BOTH) == counted


def test_what_a_chain_takes_longer_counts_for_its_helpers_in_this_order(history: CorrectionHistory) -> None:
    add(history, BOTH, *[7] * 5)
    corrections = history.corrections
    assert [corrections.of_chain(each) for each in (BOTH, BOTH_ELSEWHERE, BOTH_TURNED, WHOLE)] == [7, 7, 0, 0]
