"""Lower confidence bounds on a network's scores, estimated from a sample of examples."""

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from executors.data.storage import Array
from executors.outputs.metrics import score
from executors.outputs.objectives import OutputObjective
from mistify.config.data.metric import Metric
from mistify.config.data.targets import OVERALL, Target

#: The confidence level of a bound.
CONFIDENCE: Final = 0.9

#: Groups of examples for the jackknife; each is left out once.
_GROUPS: Final = 20

#: Metrics that are the share of correct examples or positions.
_SHARES_OF_RIGHT: Final = (Metric.ACCURACY, Metric.AGREEMENT, Metric.EXACT_MATCH)


def lower_bound(
    metric: Metric, objectives: Mapping[str, OutputObjective], outputs: Mapping[str, Array],
    targets: Mapping[str, Array],
) -> float:  # fmt: skip
    """Return the score that is reached or exceeded on data of this kind with 90 % confidence.

    For shares of correct answers, this is Wilson's bound (1927). For other metrics it uses the jackknife
    standard
    error: the metric is computed repeatedly, each time without one group of examples (Efron and Tibshirani,
        1993).

    Args:
        metric: For an error metric, the bound is above the measured score.
        outputs: Output name -> predictions [examples, ...].
        targets: Output name -> [examples, ...]; positions of -1 are ignored.
    """
    from scipy.stats import binomtest, t  # noqa: PLC0415 (half a second to import)

    figure = score(metric, objectives, outputs, targets)
    count = len(next(iter(targets.values())))
    if metric in _SHARES_OF_RIGHT:
        test = binomtest(round(figure * count), count)
        return float(test.proportion_ci(2 * CONFIDENCE - 1, method="wilson").low)
    if count < 2:
        return metric.worst
    groups = np.array_split(np.random.default_rng(0).permutation(count), min(_GROUPS, count))
    without = [
        score(metric, objectives, _rows(outputs, rest), _rows(targets, rest))
        for rest in (np.setdiff1d(np.arange(count), group) for group in groups)
    ]
    error = sqrt((len(groups) - 1) * float(np.var(without))) * float(t.ppf(CONFIDENCE, len(groups) - 1))
    return max(figure - error, metric.worst) if metric.is_share else figure + error


def bound_on_loss(before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]) -> float:
    """Return the loss of accuracy that is not exceeded on data of this kind with 90 % confidence.

    Both networks answer the same examples, so only those that exactly one of them gets right count. This is
    Agresti and Min's adjusted Wald bound for matched pairs (2005).

    Args:
        before: Whether the first network is right [examples].
        after: Whether the second network is right [examples].
    """
    from scipy.stats import norm  # noqa: PLC0415 (half a second to import)

    count = len(before) + 2
    lost, gained = (np.count_nonzero(one & ~other) + 0.5 for one, other in ((before, after), (after, before)))
    loss = (lost - gained) / count
    variance = (lost + gained - count * loss**2) / count**2
    return float(loss + norm.ppf(CONFIDENCE) * sqrt(variance))


def reached_with_confidence(
    wanted: Iterable[Target], objectives: Mapping[str, OutputObjective], outputs: Mapping[str, Array],
    targets: Mapping[str, Array],
) -> bool:  # fmt: skip
    """Return whether a network reaches each of some targets with 90 % confidence.

    Args:
        wanted: Targets for single outputs, or for all of them together.
        outputs: Output name -> predictions [examples, ...].
        targets: Output name -> [examples, ...]; positions of -1 are ignored.
    """

    def bound(target: Target) -> float:
        names = objectives if target.output == OVERALL else [target.output]
        return lower_bound(target.metric, {name: objectives[name] for name in names}, outputs, targets)

    return all(target.metric.reaches(bound(target), target.value) for target in wanted)


def _rows(arrays: Mapping[str, Array], rows: Array) -> dict[str, Array]:
    return {name: array[rows] for name, array in arrays.items()}
