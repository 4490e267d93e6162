"""What `elastic_quality` makes of the accuracies of its sides."""

import pytest

from benchmarks.elastic_quality import ADAPTIVENET, MORPHNET, SHRUNK, Side, figures_of
from benchmarks.porting import Reached


def side(accuracies: list[float], seconds: float) -> Side:
    shares = (0.9, 0.6, 0.4)
    pairs = zip(accuracies, shares, strict=True)
    return Side([Reached(accuracy, share, 0, {}) for accuracy, share in pairs], seconds)


def test_points_are_of_the_worst_goal_and_what_merging_gains_of_the_smallest():
    run = {
        ADAPTIVENET: side([56.0, 55.0, 53.0], 100),
        SHRUNK: side([56.5, 54.0, 50.0], 90),
        MORPHNET: side([57.0, 56.5, 57.0], 400),
    }
    figures = figures_of([run])
    assert {name: value for name, value in figures.items() if "mean" not in name} == pytest.approx(
        {
            "least_gained_over_shrunk": -0.5,
            "gained_over_shrunk_at_least": 3,
            "points_below_morphnet": 4,
            "share_of_morphnet_seconds": 0.25,
            "adaptivenet_seconds": 100,
            "shrunk_alone_seconds": 90,
            "morphnet_seconds": 400,
        }
    )
