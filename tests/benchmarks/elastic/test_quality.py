"""The results of `elastic_quality` from the accuracies of its sides."""

import pytest

from benchmarks.elastic import quality as elastic_quality
from benchmarks.elastic.quality import ADAPTIVENET, MORPHNET, SHRUNK, Side, figures_of, side_of
from benchmarks.harness.worker import Checkpoint, Reached


def side(accuracies: list[float], seconds: float) -> Side:
    shares = (0.9, 0.6, 0.4)
    pairs = zip(accuracies, shares, strict=True)
    return Side([Reached(accuracy, share, 0, {}) for accuracy, share in pairs], seconds)


def test_points_are_those_of_the_worst_goal_and_the_gain_of_merging_of_the_smallest():
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


class FakePorting:
    """A fake that takes 100 seconds to prepare, 10 per goal, and 1 to test a network."""

    def __init__(self, clock):
        self.clock = clock
        clock.append(100)

    def descended(self, steps):
        self.clock.extend([10] * len(steps))
        return {share: Checkpoint(f"{share} by {of}", {}, 0.5) for share, of in steps.items()}

    def reached(self, checkpoint, steps):
        self.clock.append(1)
        return Reached(50.0, float(checkpoint.artifact.split()[0]), steps, {})


@pytest.mark.parametrize(("steps", "counted"), [(None, 0), (1_000, 1_000)])
def test_seconds_include_preparing_and_porting_but_not_testing(monkeypatch, steps, counted):
    clock = []
    monkeypatch.setattr(elastic_quality, "process_time", lambda: sum(clock))

    side = side_of(lambda: FakePorting(clock), [0.9, 0.4], steps)

    assert side.seconds == 120
    assert [(reached.share, reached.steps) for reached in side.reached] == [(0.9, counted), (0.4, counted)]
    assert sum(clock) == 122
