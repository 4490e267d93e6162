"""Accuracy forecasts by Monte Carlo sampling: quantiles over many randomly drawn networks.

The tuned source is drawn on an unbounded scale with roughly uniform errors: the logit of an accuracy, or the
negative logarithm of an error. On this scale, a network that is still learning gains about the same amount
with each doubling of its training steps. The same holds for a network adapted from it, with its own steps.
The accuracy loss of adaptation follows Student's t distribution, because the spread of losses is poorly known
for a new model. Finally, sampling noise accounts for the limited size of the test set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, log2, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np

from mistify.config.data.metric import Metric
from mistify.jobs.plan import Estimate, Interval
from mistify_server.planning.forecast.kernel import Floats
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial

#: Standard deviation between repeated tunings of a source, on the scale.
_REPETITION: Final = 0.25

#: Standard deviation of the gain per doubling of the steps: relative to the gain so far, and its lower bound.
_GAIN_SPREAD: Final = 1.0
_LEAST_GAIN_SPREAD: Final = 0.15

#: For a source without a tuning trial: the fraction of the gap to a good network that tuning closes, and the
#: position of a good network on the scale.
_SHARE_OF_WAY: Final = Estimate(0.65, 0.3)
_GOOD: Final = 3.5

#: The same for errors, where no value counts as good: the decrease of their logarithm.
_FALL_OF_ERRORS: Final = Estimate(0.5, 0.7)

#: Assumed number of examples in a data set of unknown size.
_EXAMPLES: Final = 500

_DRAWS: Final = 1_000

#: Quantiles of the standard normal distribution, [draws]. Shuffled, they serve as draws with exact moments.
_QUANTILES: Final = np.array([NormalDist().inv_cdf((place + 0.5) / _DRAWS) for place in range(_DRAWS)])


@dataclass(frozen=True)
class SourceForecast:
    """A forecast of the tuned source on the scale: a normal distribution, truncated at its present figure.

    Attributes:
        middle: The mean.
        deviation: The standard deviation.
        least: The present figure.
        learning: The gain per doubling of the training steps.
    """

    middle: float
    deviation: float
    least: float = -np.inf
    learning: float = 0.0

    def figure(self, metric: Metric) -> float:
        """Return the figure that it reaches with a probability of one half."""
        return float(_figures(metric, np.array(max(self.middle, self.least))))


def source_forecast_of(
    metric: Metric, estimates: EdgeEstimates, trial: SourceTrial | None, known: float | None
) -> SourceForecast | None:
    """Return the forecast of the tuned source; None if it has never been measured.

    Args:
        estimates: Estimates that include the source's figure before tuning.
        trial: A short trial of tuning the source, if available.
        known: The figure that the source reached in an earlier job, if any.
    """
    sampled = (trial.sampled if trial else None) or _EXAMPLES
    came, steps = estimates.accuracy, estimates.source_steps
    start = None if came is None else _scale(metric, came, sampled)
    if known is not None:
        middle, variance = _scale(metric, known, sampled), _sampling(metric, known, sampled)
        learning = 0.0 if start is None else _learning(start, middle, steps)
        return SourceForecast(middle, sqrt(_REPETITION**2 + variance), learning=learning)
    if came is None or start is None:
        return None
    variance = _sampling(metric, came, sampled)
    if not steps:
        return SourceForecast(start, sqrt(variance))
    least = start - sqrt(variance)
    if trial and trial.steps and trial.accuracy is not None:
        tried = _scale(metric, trial.accuracy, sampled)
        variance = _sampling(metric, trial.accuracy, sampled)
        doublings = max(0.0, log2(steps / trial.steps))
        learning = _learning(start, tried, trial.steps)
        middle, scatter = (
            tried + learning * doublings,
            (_GAIN_SPREAD * learning + _LEAST_GAIN_SPREAD) * doublings,
        )
        return SourceForecast(
            max(middle, start), sqrt(variance + _REPETITION**2 + scatter**2), least, learning
        )
    way = (1 - came) * max(0.0, _GOOD - start) if metric.is_share else 1.0
    gain = _SHARE_OF_WAY if metric.is_share else _FALL_OF_ERRORS
    middle, scatter = start + gain.mean * way, gain.deviation * way
    deviation = sqrt(variance + _REPETITION**2 + scatter**2)
    return SourceForecast(middle, deviation, least, _learning(start, middle, steps))


def _learning(start: float, end: float, steps: int) -> float:
    """Return the gain per doubling from the positions on the scale before and after a number of steps."""
    return max(0.0, end - start) / max(1.0, log2(max(steps, 1)))


def interval_of(
    metric: Metric,
    source: SourceForecast,
    losses: Sequence[Estimate],
    *,
    doublings: float = 0.0,
    gain_in_losses: bool = False,
    degrees: float,
    tested: int | None,
) -> Interval:
    """Return the interval for a network's figure on the test data.

    Args:
        source: The source from which the network is adapted.
        losses: Losses relative to the source's figure; none for the source itself.
        doublings: Number of times that the network's training doubles the source's steps.
        gain_in_losses: Whether the losses already include the gain from these steps, as losses of the same
            model do.
        degrees: Degrees of freedom of the losses' distribution, above 2.
        tested: Number of test examples; None if it is unknown.
    """
    random = np.random.default_rng(0)
    tuned = np.maximum(source.middle + source.deviation * _normal(random), source.least)
    gain = source.learning * doublings * np.maximum(0.0, 1 + _GAIN_SPREAD * _normal(random))
    able = tuned + gain
    reached = _figures(metric, tuned if gain_in_losses else able)
    for lost in losses:
        spread = lost.deviation * np.sqrt((degrees - 2) / random.chisquare(degrees, _DRAWS))
        kept = 1 - (lost.mean + spread * _normal(random))
        reached = np.clip(reached * kept, 0, 1) if metric.is_share else reached / np.maximum(kept, 1e-6)
    most = _figures(metric, able + _REPETITION * np.abs(_normal(random)))
    reached = np.minimum(reached, most) if metric.is_share else np.maximum(reached, most)
    counted = _counted(metric, reached, tested or _EXAMPLES, random)
    low, middle, high = np.quantile(counted, [0.025, 0.5, 0.975]).tolist()
    return Interval(middle, low, high)


def _counted(metric: Metric, figures: Floats, examples: int, random: np.random.Generator) -> Floats:
    """Return the figures measured on a limited number of examples, [draws]."""
    if metric.is_share:
        return random.binomial(examples, figures) / examples
    return figures * random.chisquare(examples, _DRAWS) / examples


def _normal(random: np.random.Generator) -> Floats:
    """Return draws from the standard normal distribution, [draws]."""
    return random.permutation(_QUANTILES)


def _scale(metric: Metric, figure: float, examples: int) -> float:
    """Return the position of a figure on the scale, smoothed by half a correct and half a wrong example."""
    if not metric.is_share:
        return -log(max(figure, 1e-12))
    share = (figure * examples + 0.5) / (examples + 1)
    return log(share / (1 - share))


def _figures(metric: Metric, places: Floats) -> Floats:
    """Return the figures at positions on the scale; the inverse of `_scale`."""
    figures: Floats = 1 / (1 + np.exp(-places)) if metric.is_share else np.exp(-places)
    return figures


def _sampling(metric: Metric, figure: float, examples: int) -> float:
    """Return the sampling variance, on the scale, of a figure measured on a limited number of examples."""
    if not metric.is_share:
        return 2 / examples
    share = 1 / (1 + exp(-_scale(metric, figure, examples)))
    return 1 / (examples * share * (1 - share))
