"""Forecasts of the scores of a tuned source, and of networks that are adapted from it."""

from collections.abc import Iterable
from typing import NamedTuple

from mistify.config.data.metric import Metric
from mistify.jobs.plan import Estimate
from mistify_server.planning.forecast.accuracy import SourceForecast
from mistify_server.planning.forecast.history import ForecastHistory


class ScoreForecast(NamedTuple):
    """A forecast of the tuned source for one metric of one output or `OVERALL`, with its basis."""

    output: str
    metric: Metric
    forecast: SourceForecast
    history: ForecastHistory


def figures_after(
    losses: Iterable[Estimate], scores: Iterable[ScoreForecast]
) -> dict[tuple[str, Metric], float]:
    """Return the figures of a network after relative losses on each score."""
    return {
        (score.output, score.metric): score.metric.after(score.forecast.figure(score.metric), lost.mean)
        for score, lost in zip(scores, losses, strict=True)
    }
