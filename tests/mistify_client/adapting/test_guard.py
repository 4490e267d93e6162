"""The guard: what it does at which shift, and what counts as a collapse."""

import numpy as np
import pytest

from mistify_client.adapting.guard import (
    LEAST_SECONDS,
    LONGEST_WAIT,
    Action,
    Shifts,
    chosen_action,
    has_collapsed,
)

EVER = float("inf")


@pytest.mark.parametrize(
    ("shift", "since", "seconds", "action"),
    [
        (0.3, None, EVER, Action.KEEP),
        (1.49, None, EVER, Action.KEEP),
        (1.5, None, EVER, Action.INSTALL),
        (5.0, None, LEAST_SECONDS - 1, Action.KEEP),
        (5.0, 0.4, EVER, Action.KEEP),
        (5.0, 0.5, EVER, Action.INSTALL),
        (5.0, 0.5, LEAST_SECONDS - 1, Action.KEEP),
        (1.2, 3.0, EVER, Action.KEEP),
        (0.99, 3.0, 0.0, Action.RESTORE),
    ],
)
def test_actions_once_the_statistics_have_settled(shift, since, seconds, action):
    assert chosen_action(Shifts(shift, 0.1, since), seconds, 0.0) is action


@pytest.mark.parametrize(
    ("recent", "waited", "action"),
    [
        (float("inf"), 0.0, Action.KEEP),
        (3.1, 0.0, Action.KEEP),
        (2.9, 0.0, Action.INSTALL),  # less than a third of the shift
        (5.0, LONGEST_WAIT - 1, Action.KEEP),
        (5.0, LONGEST_WAIT, Action.INSTALL),  # they may never settle
    ],
)
def test_an_installation_waits_for_the_statistics_to_settle(recent, waited, action):
    assert chosen_action(Shifts(9.0, recent), EVER, waited) is action
    assert chosen_action(Shifts(9.0, recent, 3.0), EVER, waited) is action


def test_small_moves_count_as_settled():
    assert chosen_action(Shifts(1.6, 0.45), EVER, 0.0) is Action.INSTALL


def test_a_restoration_does_not_wait():
    assert chosen_action(Shifts(0.9, 4.0, 3.0), 0.0, 0.0) is Action.RESTORE


def test_few_classes_of_many_are_a_collapse():
    classes = np.eye(10)
    shipped = [classes[number % 10] for number in range(20)]
    assert not has_collapsed(shipped, shipped)
    assert not has_collapsed([classes[number % 5] for number in range(20)], shipped)
    assert has_collapsed([classes[number % 2] for number in range(20)], shipped)
    assert has_collapsed([classes[0] * np.nan], shipped)
