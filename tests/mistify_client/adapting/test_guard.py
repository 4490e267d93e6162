"""The guard: what it does at which shift, and what counts as a collapse."""

import numpy as np
import pytest

from mistify_client.adapting.guard import LEAST_SECONDS, Action, chosen_action, has_collapsed

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
def test_actions(shift, since, seconds, action):
    assert chosen_action(shift, since, seconds) is action


def test_few_classes_of_many_are_a_collapse():
    classes = np.eye(10)
    shipped = [classes[number % 10] for number in range(20)]
    assert not has_collapsed(shipped, shipped)
    assert not has_collapsed([classes[number % 5] for number in range(20)], shipped)
    assert has_collapsed([classes[number % 2] for number in range(20)], shipped)
    assert has_collapsed([classes[0] * np.nan], shipped)
