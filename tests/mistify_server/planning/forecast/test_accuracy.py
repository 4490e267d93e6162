"""Prediction intervals have their nominal coverage on independently simulated networks."""

import numpy as np
import pytest

from mistify.config.data.metric import Metric
from mistify.jobs.plan import Estimate, Interval
from mistify_server.planning.forecast.accuracy import SourceForecast, interval_of, source_forecast_of
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial
from tests.mistify_server.planning.forecast.histories import FEATURES, PROFILES

COMMON = {"features": FEATURES, "profiles": PROFILES, "scaled": ()}


def estimates(accuracy: float | None, source_steps: int = 400) -> EdgeEstimates:
    return EdgeEstimates(accuracy=accuracy, source_steps=source_steps, **COMMON)


def source(
    metric: Metric, accuracy: float | None, trial: SourceTrial | None = None, known: float | None = None
) -> Interval:
    forecast = source_forecast_of(metric, estimates(accuracy), trial, known)
    assert forecast is not None
    return interval_of(metric, forecast, (), degrees=4.0, tested=10_000)


def tried(steps: int, accuracy: float) -> SourceTrial:
    return SourceTrial(tested=10_000, sampled=500, steps=steps, accuracy=accuracy)


@pytest.mark.parametrize(("tested", "deviation"), [(50, 0.0), (500, 0.02), (100_000, 0.04)])
def test_an_accuracy_interval_covers_95_percent(tested: int, deviation: float) -> None:
    random, source = np.random.default_rng(1), SourceForecast(1.5, 0.3)
    interval = interval_of(Metric.ACCURACY, source, [Estimate(0.05, deviation)], degrees=6.0, tested=tested)
    figures = 1 / (1 + np.exp(-random.normal(1.5, 0.3, 20_000)))
    kept = np.clip(figures * (0.95 - deviation * random.standard_t(6.0, 20_000) * (4 / 6) ** 0.5), 0, 1)
    counted = random.binomial(tested, kept) / tested
    assert np.mean([interval.holds(each) for each in counted]) == pytest.approx(0.95, abs=0.02)
    assert interval.middle == pytest.approx(np.median(counted), abs=0.01)


def test_an_error_interval_covers_95_percent() -> None:
    random = np.random.default_rng(1)
    interval = interval_of(
        Metric.MSE, SourceForecast(-np.log(0.5), 0.2), [Estimate(0.1, 0.03)], degrees=8.0, tested=100
    )
    figures = (
        0.5
        * np.exp(random.normal(0, 0.2, 20_000))
        / (0.9 - 0.03 * random.standard_t(8.0, 20_000) * (6 / 8) ** 0.5)
    )
    counted = figures * random.chisquare(100, 20_000) / 100
    assert np.mean([interval.holds(each) for each in counted]) == pytest.approx(0.95, abs=0.02)


def test_a_trial_narrows_the_interval_of_a_source_with_random_weights() -> None:
    blind = source(Metric.ACCURACY, 0.1)
    assert blind.low < 0.5
    assert blind.high > 0.97
    shown = source(Metric.ACCURACY, 0.1, tried(400, 0.95))
    assert 0.9 < shown.low < 0.95 < shown.high
    begun = source(Metric.ACCURACY, 0.1, tried(50, 0.8))
    assert begun.low > blind.low
    assert shown.high - shown.low < begun.high - begun.low < blind.high - blind.low


def test_tuning_is_never_predicted_to_make_a_source_worse() -> None:
    for metric, accuracy, trial in ((Metric.ACCURACY, 0.9, 0.3), (Metric.MSE, 0.2, 3.0)):
        spoilt = source(metric, accuracy, tried(400, trial))
        assert spoilt.middle == pytest.approx(accuracy, rel=0.05)


def test_a_network_gains_as_much_as_a_source_that_is_still_learning() -> None:
    def interval(learning: float, doublings: float) -> Interval:
        forecast = SourceForecast(0.0, 0.01, learning=learning)
        better = [Estimate(-0.3, 0.1)]
        return interval_of(
            Metric.ACCURACY, forecast, better, doublings=doublings, degrees=9.0, tested=100_000
        )

    assert interval(0.0, 3.0) == interval(0.5, 0.0)
    assert interval(0.0, 3.0).high < 0.65  # even if other networks were much better than their sources
    assert interval(0.5, 1.0).middle == pytest.approx(1 / (1 + np.exp(-0.5)), abs=0.06)
    assert interval(0.5, 2.0).middle > interval(0.5, 1.0).middle > interval(0.5, 0.0).middle


def test_an_earlier_result_counts_more_than_a_trial() -> None:
    again = source(Metric.ACCURACY, 0.1, tried(20, 0.3), known=0.9)
    assert 0.8 < again.low < 0.9 < again.high


def test_an_interval_is_finite_even_if_all_accuracy_is_lost() -> None:
    interval = interval_of(
        Metric.MSE, SourceForecast(2.0, 0.1), [Estimate(1.5, 0.1)], degrees=8.0, tested=100
    )
    assert 0 < interval.low < interval.middle < interval.high < float("inf")


def test_there_is_no_forecast_for_a_source_that_was_never_measured() -> None:
    assert source_forecast_of(Metric.ACCURACY, estimates(None), None, None) is None
