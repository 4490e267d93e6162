"""The results of `elastic.families` from those of its runs."""

import pytest

from benchmarks.elastic.families import Family, Run, Side, figures_of


def run(adaptivenet, crowdhmt, seconds, latency):
    return Run({"depth": Family(latency, 9.0, 4.0)}, Side(adaptivenet, 100.0), Side(crowdhmt, seconds))


def test_gains_are_means_over_the_shares_that_both_sides_reach():
    runs = [
        run({0.75: 80.0, 0.5: 70.0}, {0.75: 81.0, 0.5: 73.0, 0.35: 60.0}, 150.0, 0.5),
        run({0.75: 80.0, 0.5: 70.0}, {0.75: 80.0, 0.5: 72.0, 0.35: 60.0}, 130.0, 0.4),
        run({0.75: 80.0, 0.5: 70.0}, {0.75: 85.0, 0.5: 75.0, 0.35: 62.0}, 170.0, 0.6),
    ]
    assert figures_of(runs) == pytest.approx(
        {
            "gained": 2.0,
            "preparing": 1.5,
            "gained_at_0.75": 1.0,
            "gained_at_0.5": 3.0,
            "adaptivenet_at_0.75": 80.0,
            "crowdhmt_at_0.75": 81.0,
            "adaptivenet_at_0.5": 70.0,
            "crowdhmt_at_0.5": 73.0,
            "crowdhmt_at_0.35": 60.0,
            "depth_latency": 0.5,
            "depth_closed": 9.0,
            "depth_trained": 4.0,
        }
    )
