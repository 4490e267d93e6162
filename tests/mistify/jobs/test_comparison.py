"""Scores of packages next to the score of their source."""

import pytest

from mistify.config.data.metric import Metric
from mistify.jobs.comparison import compared_quality
from mistify.jobs.job import Goal, Source
from mistify.jobs.package_spec import PackageSpec


@pytest.mark.parametrize(
    ("metric", "accuracy", "tuned", "shown"),
    [
        (Metric.ACCURACY, 0.784, 0.815, "78.4% (-3.1)"),
        (Metric.F1, 0.9, 0.9001, "90.0% (+0.0)"),
        (Metric.MSE, 0.03, 0.02, "0.03 (+50%)"),
        (Metric.MSE, 0.018, 0.02, "0.018 (-10%)"),
        (Metric.MSE, 0.018, 0.0, "0.018"),
        (Metric.ACCURACY, 0.784, None, "78.4%"),
        (Metric.ACCURACY, None, 0.8, "-"),
    ],
)
def test_accuracies_are_shown_with_their_change(metric, accuracy, tuned, shown):
    goal = Goal("a", 0, PackageSpec({}), metric=metric)
    assert compared_quality(goal, accuracy, Source({}, metric=metric, tuned_accuracy=tuned)) == shown
