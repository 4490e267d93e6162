"""A network is not tuned if it has lost nothing and has little loss left."""

import pytest

from mistify.jobs.tuning_steps import needed_steps


@pytest.mark.parametrize(
    ("loss", "source_steps", "uncut"),
    [
        (0.0, 0, 0),
        (0.099, 0, 0),
        (0.1, 0, 100),
        (2.0, 99, 100),
        (2.0, 100, 0),
        (float("nan"), 0, 100),
        (None, 99, 100),
        (None, 100, 0),
    ],
)
def test_no_steps_are_needed_if_nothing_is_left_to_gain(
    loss: float | None, source_steps: int, uncut: int
) -> None:
    assert needed_steps(100, loss, source_steps, is_cut=False) == uncut
    assert needed_steps(100, loss, source_steps, is_cut=True) == 100
