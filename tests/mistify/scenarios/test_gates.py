"""Which units stay open within a limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.scenarios.gates import open_units

LOGITS = np.array([0.5, -1.0, 2.0, 0.1, -0.3, -0.2], np.float32)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1.0, [[True, False, True], [True, False, False]]),
        (0.5, [[True, False, True], [True, False, False]]),
        (0.34, [[False, False, True], [True, False, False]]),
        (0.01, [[False, False, True], [True, False, False]]),
    ],
)
def test_the_highest_stay_within_the_limit_and_one_of_each_group(limit, expected):
    opened = open_units(LOGITS, limit, [3, 3], [1, 1])
    assert [group.tolist() for group in opened] == expected


def test_a_group_keeps_its_least_number_though_their_gates_are_closed():
    opened = open_units(LOGITS, 1.0, [3, 3], [1, 2])
    assert [group.tolist() for group in opened] == [[True, False, True], [True, False, True]]


@given(
    st.lists(st.floats(-5, 5, width=32), min_size=6, max_size=30),
    st.floats(0.01, 1),
    st.integers(1, 3),
)
def test_the_limit_is_kept_and_no_closed_unit_is_better_than_an_open_one(logits, limit, least):
    values = np.array(logits, np.float32)
    units = [3, len(values) - 3]
    opened = np.concatenate(open_units(values, limit, units, [least, least]))
    needed = np.concatenate(
        [
            np.argsort(-own, kind="stable")[:least] + at
            for own, at in zip(np.split(values, [3]), (0, 3), strict=True)
        ]
    )
    assert opened[needed].all()
    assert opened.sum() <= max(int(limit * len(values) + 1e-6), 2 * least)
    chosen = np.setdiff1d(np.flatnonzero(opened), needed)
    closed = np.flatnonzero(~opened)
    assert (values[chosen] > 0).all()
    if len(chosen) and len(closed):
        assert values[chosen].min() >= values[closed].max()
