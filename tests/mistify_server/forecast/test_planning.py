"""How uncertain it is what a network reaches: as often as many networks that lose at random tell."""

import numpy as np
import pytest

from mistify.metric import Metric
from mistify.plans import Estimate
from mistify_server.forecast.planning import after_losing


@pytest.mark.parametrize("metric", [Metric.ACCURACY, Metric.MSE])
@pytest.mark.parametrize(
    ("source", "lost"),
    [
        (Estimate(0.6, 0.02), Estimate(0.5, 0.01)),
        (Estimate(0.6, 0.002), Estimate(0.5, 0.02)),
        (Estimate(0.4, 0.01), Estimate(-0.25, 0.03)),
    ],
)
def test_the_margin_is_that_of_networks_that_lose_at_random(
    metric: Metric, source: Estimate, lost: Estimate
) -> None:
    random = np.random.default_rng(0)
    drawn = zip(
        random.normal(source.mean, source.deviation, 20_000),
        random.normal(lost.mean, lost.deviation, 20_000),
        strict=True,
    )
    reached = [metric.after(figure, share) for figure, share in drawn]
    expected = after_losing(metric, source, lost)
    assert expected.mean == pytest.approx(np.mean(reached), rel=0.01)
    assert expected.deviation == pytest.approx(np.std(reached), rel=0.03)


def test_an_error_of_which_nothing_is_kept_has_a_margin() -> None:
    expected = after_losing(Metric.MSE, Estimate(0.1, 0.01), Estimate(1.5, 0.1))
    assert 0 < expected.mean < expected.deviation < float("inf")
