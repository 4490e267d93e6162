"""Criteria for scoring the outputs of subnets on the examples of a device."""

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.training import OutputEncoding
from mistify_client.runtime.inputs import Array
from mistify_client.subnets.search.candidates import SubnetScore

Floats = npt.NDArray[np.float64]

#: Lower bound on probabilities, so that losses stay finite.
_LEAST: Final = 1e-7


class OutputCriterion(Protocol):
    """The score of one output, given the targets."""

    def sums(self, output: Array, rows: slice) -> Floats:
        """Return the sums of scores and losses on a batch, for `score`.

        Args:
            output: [batch, ...].
            rows: The examples of the batch.
        """
        ...

    def score(self, sums: Floats) -> SubnetScore:
        """Return the score from the sums over all batches."""
        ...


class ClassificationCriterion:
    """Accuracy and cross-entropy of classes predicted as probabilities.

    Yes and no are two classes.
    """

    def __init__(self, kind: OutputEncoding, right: Array) -> None:
        """Keep the classes.

        Args:
            kind: Encoding of the output's values.
            right: Targets [examples, ...], classes; or probabilities of classes or of yes, [examples, ...,
                values], predicted by another network. -1 for unknown classes.

        Raises:
            MistifyError: INVALID_DATASET, all classes are unknown.
        """
        self._kind = kind
        self._probable = right.dtype.kind == "f"
        self._right = _distribution(kind, right) if self._probable else right
        known = (self._right >= 0).all(-1) if self._probable else right >= 0
        self._known = int(np.count_nonzero(known))
        if not self._known:
            problem = Problem("the labels", "none that is known", "classes from 0 on", "leave them out")
            raise MistifyError(ErrorCode.INVALID_DATASET, "the data cannot be used", [problem])

    def sums(self, output: Array, rows: slice) -> Floats:
        """Return the number of correct predictions in a batch, and the sum of their cross-entropies."""
        probabilities = _distribution(self._kind, self._kind.predictions(output))
        logarithms, right = np.log(np.maximum(probabilities, _LEAST)), self._right[rows]
        if self._probable:
            # Labels may lack the last axis of a single-valued output.
            right = right.reshape(probabilities.shape)
            known = (right >= 0).all(-1)
            same = (probabilities.argmax(-1) == right.argmax(-1))[known]
            return np.array([same.sum(), -(right * logarithms)[known].sum()])
        right = right.reshape(probabilities.shape[:-1]).astype(np.int64)
        known = right >= 0
        same = (probabilities.argmax(-1) == right)[known]
        chosen = np.take_along_axis(logarithms, np.maximum(right, 0)[..., None], -1)[..., 0]
        return np.array([same.sum(), -chosen[known].sum()])

    def score(self, sums: Floats) -> SubnetScore:
        """Return the share of correct predictions, and the mean cross-entropy."""
        return SubnetScore(*map(float, sums / self._known))


class RegressionCriterion:
    """Scores by the fraction of the variance that a network explains, and the unexplained fraction.

    The fraction is at least 0. Deviations may be absolute, from the median, instead of squared.
    """

    def __init__(self, right: Array, *, absolute: bool = False) -> None:
        """Keep the targets.

        Args:
            right: [examples, ...].
            absolute: Use absolute errors instead of squared ones.
        """
        self._right = right.astype(np.float64)
        self._cost = np.abs if absolute else np.square
        constant = np.median(self._right, 0) if absolute else self._right.mean(0)
        self._most = float(self._cost(self._right - constant).sum()) or 1.0

    @property
    def error(self) -> float:
        """The mean absolute or squared error of a network that explains nothing, which has a loss of 1."""
        return self._most / self._right.size

    def sums(self, output: Array, rows: slice) -> Floats:
        """Return the sum of the absolute or squared errors on a batch."""
        return np.array([self._cost(output - self._right[rows].reshape(output.shape)).sum()])

    def score(self, sums: Floats) -> SubnetScore:
        """Return the explained and the unexplained share."""
        unexplained = float(sums[0]) / self._most
        return SubnetScore(max(0.0, 1 - unexplained), unexplained)


def criterion_for(kind: OutputEncoding, right: Array, metric: Metric = Metric.MEAN_SCORE) -> OutputCriterion:
    """Return the criterion for an output.

    Args:
        kind: Encoding of the output's values.
        right: Targets as in `ClassificationCriterion` or `RegressionCriterion`.
        metric: The metric for scoring subnets.

    Raises:
        MistifyError: INVALID_DATASET, all classes are unknown.
    """
    if kind is OutputEncoding.FIGURES:
        return RegressionCriterion(right, absolute=metric is Metric.MAE)
    return ClassificationCriterion(kind, right)


def _distribution(kind: OutputEncoding, predictions: Array) -> Array:
    """Return the probabilities of classes, along the last axis, from predictions."""
    if kind in (OutputEncoding.SIGMOID, OutputEncoding.LOGIT):
        return np.stack([1 - predictions, predictions], axis=-1)
    return predictions
