"""Scores by limit, and what is read between those that were measured."""

import numpy as np
import pytest
from pydantic import ValidationError

from mistify.scenarios.quality import UNMEASURED, Quality, measured_limits

QUALITY = Quality(tasks=("a", "b"), limits=(0.1, 0.4, 1.0), scores=((0.6, 0.8, 0.7), (0.8, 1.0, 0.9)))


def test_the_expected_score_is_the_mean_and_interpolated_between_limits():
    assert [QUALITY.expected(limit) for limit in QUALITY.limits] == pytest.approx([0.7, 0.9, 0.8])
    assert QUALITY.expected(0.2) == pytest.approx(0.8)  # half of the way, as 0.2 / 0.1 is 0.4 / 0.2
    assert QUALITY.expected(0.01) == pytest.approx(0.7)


def test_each_task_has_scores_of_its_own():
    assert QUALITY.score("b", 0.2) == pytest.approx(0.9)
    assert QUALITY.score("c", 0.2) is None


def test_limits_are_tried_at_equal_ratios():
    tried = np.array(QUALITY.tried_limits())
    assert (len(tried), tried[0], tried[-1]) == (24, pytest.approx(0.1), pytest.approx(1.0))
    np.testing.assert_allclose(tried[1:] / tried[:-1], tried[1] / tried[0])
    assert measured_limits(0.05)[0] == pytest.approx(0.05)


@pytest.mark.parametrize(
    "update",
    [
        {"scores": ((0.5, 0.5), (0.5, 0.5))},
        {"scores": ((0.5, 0.5, 0.5),)},
        {"scores": ((0.5, 0.5, 1.5), (0.5, 0.5, 0.5))},
        {"limits": (0.4, 0.1, 1.0)},
        {"limits": (0.0, 0.1, 1.0)},
    ],
)
def test_scores_that_are_no_table_are_refused(update):
    with pytest.raises(ValidationError):
        Quality.model_validate(QUALITY.model_dump() | update)


def test_nothing_is_measured_before_a_network_is_trained():
    assert UNMEASURED.limits == ()
    assert Quality.model_validate_json(UNMEASURED.model_dump_json()) == UNMEASURED
