"""Targets and scores: reached targets, the strictest of several targets, and better scores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import OVERALL, Scores, Target, missed, reached, serves_better, strictest

KIND, PRICE = Target("kind", Metric.ACCURACY, 0.8), Target("price", Metric.MSE, 0.05)
BOTH = Target(OVERALL, Metric.MEAN_SCORE, 0.7)


def scores(kind: float, price: float, overall: float = 0.9) -> Scores:
    outputs = OutputScore("kind", Metric.ACCURACY, kind), OutputScore("price", Metric.MSE, price)
    return Scores(overall, outputs)


def test_a_missed_target_is_reported_with_its_output_and_score() -> None:
    targets = BOTH, KIND, PRICE
    assert missed(targets, scores(0.8, 0.05)) == ""
    assert missed(targets, scores(0.9, 0.06)) == "price: mse 0.0600 above 0.0500"
    assert missed(targets, scores(0.7, 0.01, 0.6)) == (
        "mean_score 0.6000 below 0.7000, kind: accuracy 0.7000 below 0.8000"
    )
    assert missed([PRICE], Scores(1.0)) == "price: no mse was measured"
    assert missed((), Scores(0.0)) == ""


def test_only_a_score_in_the_metric_of_the_target_counts() -> None:
    balanced = OutputScore("kind", Metric.BALANCED_AGREEMENT, 0.4)
    plain = OutputScore("kind", Metric.AGREEMENT, 0.9)
    assert reached([Target("kind", Metric.AGREEMENT, 0.8)], Scores(0.0, (balanced, plain)))
    assert not reached([Target("kind", Metric.AGREEMENT, 0.8)], Scores(0.0, (balanced,)))


@pytest.mark.parametrize(
    ("mine", "other", "better"),
    [
        (scores(0.9, 0.04, 0.1), scores(0.9, 0.06, 0.9), True),
        (scores(0.9, 0.06, 0.9), scores(0.9, 0.04, 0.1), False),
        (scores(0.9, 0.04, 0.5), scores(0.9, 0.04, 0.4), True),
        (scores(0.9, 0.07, 0.4), scores(0.9, 0.06, 0.5), False),
    ],
)
def test_scores_that_reach_all_targets_rank_before_higher_scores(
    mine: Scores, other: Scores, better: bool
) -> None:
    assert serves_better(Metric.MEAN_SCORE, mine, other, (KIND, PRICE)) is better


@pytest.mark.parametrize(
    ("metric", "mine", "better"),
    [
        (Metric.ACCURACY, 0.83, True),
        (Metric.ACCURACY, 0.81, False),
        (Metric.MSE, 0.77, True),
        (Metric.MSE, 0.79, False),
    ],
)
def test_the_required_improvement_is_relative_to_the_other_score(
    metric: Metric, mine: float, better: bool
) -> None:
    """Better by 2% of 0.8 means an accuracy above 0.816, or an error below 0.784."""
    assert serves_better(metric, Scores(mine), Scores(0.8), (), by=0.02) is better


def test_reaching_a_target_counts_as_better_however_small_the_difference() -> None:
    targets = (Target(OVERALL, Metric.ACCURACY, 0.8),)
    assert serves_better(Metric.ACCURACY, Scores(0.801), Scores(0.799), targets, by=0.02)


figures = st.floats(0.01, 1)
targets = st.lists(
    st.builds(lambda value: Target("kind", Metric.ACCURACY, value), figures)
    | st.builds(lambda value: Target("price", Metric.MSE, value), figures)
)


@given(targets, targets, st.builds(scores, figures, figures))
def test_scores_reach_the_strictest_targets_exactly_if_they_reach_all(
    some: list[Target], others: list[Target], by: Scores
) -> None:
    common = strictest(some, others)
    assert reached(common, by) == (reached(some, by) and reached(others, by))
    assert len({target.output for target in common}) == len(common)
