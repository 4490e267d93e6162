"""A network is not tuned if it has lost nothing and has little loss left."""

import pytest

from mistify.jobs.tuning_steps import needed_steps


@pytest.mark.parametrize(
    ("loss", "uncut"), [(0.0, 0), (0.099, 0), (0.1, 100), (2.0, 100), (float("nan"), 100), (None, 100)]
)
def test_no_steps_are_needed_if_nothing_is_left_to_gain(loss: float | None, uncut: int) -> None:
    assert needed_steps(100, loss, is_cut=False) == uncut
    assert needed_steps(100, loss, is_cut=True) == 100
