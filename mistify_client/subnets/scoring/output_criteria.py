"""Criteria by which the outputs of subnets are scored on the examples of a device."""

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.training import OutputEncoding
from mistify_client.runtime.inputs import Array
from mistify_client.subnets.search.candidates import SubnetScore

Floats = npt.NDArray[np.float64]

#: Below it, probabilities count as this much: a loss stays finite.
_LEAST: Final = 1e-7


class OutputCriterion(Protocol):
    """The score of one output by right answers."""

    def sums(self, output: Array, rows: slice) -> Floats:
        """Return the gains and losses of a network on a batch, for `score`.

        Args:
            output: [batch, ...].
            rows: The examples of the batch.
        """
        ...

    def score(self, sums: Floats) -> SubnetScore:
        """Return the score from the sums over all batches."""
        ...


class ClassificationCriterion:
    """Accuracy and cross-entropy of classes that are predicted as probabilities.

    Yes and no are two classes.
    """

    def __init__(self, kind: OutputEncoding, right: Array) -> None:
        """Keep the classes.

        Args:
            kind: Encoding of the output's values.
            right: [examples, ...], classes; or probabilities of classes or of yes, [examples, ..., values],
                the answers of another network. -1 where nobody knows the class.

        Raises:
            MistifyError: INVALID_DATASET, no class is known.
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
        """Return how many answers of a batch are right, and the sum of their cross-entropies."""
        probabilities = _distribution(self._kind, self._kind.predictions(output))
        logarithms, right = np.log(np.maximum(probabilities, _LEAST)), self._right[rows]
        if self._probable:
            # Labels may lack the last axis of an output of one value.
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
        """Return the share of right answers, and the mean cross-entropy."""
        return SubnetScore(*map(float, sums / self._known))


class RegressionCriterion:
    """The share of the figures' variance that a network explains, 0 at least, and the share it does not.

    Or of their absolute deviations from the median.
    """

    def __init__(self, right: Array, *, absolute: bool = False) -> None:
        """Keep the figures.

        Args:
            right: [examples, ...].
            absolute: Count errors as they are, and not their squares.
        """
        self._right = right.astype(np.float64)
        self._cost = np.abs if absolute else np.square
        constant = np.median(self._right, 0) if absolute else self._right.mean(0)
        self._most = float(self._cost(self._right - constant).sum()) or 1.0

    @property
    def error(self) -> float:
        """The mean error, or squared error, of a network that explains nothing: it has a loss of 1."""
        return self._most / self._right.size

    def sums(self, output: Array, rows: slice) -> Floats:
        """Return the sum of the errors, or of their squares, of a batch."""
        return np.array([self._cost(output - self._right[rows].reshape(output.shape)).sum()])

    def score(self, sums: Floats) -> SubnetScore:
        """Return the share that is explained, and the share that is not."""
        unexplained = float(sums[0]) / self._most
        return SubnetScore(max(0.0, 1 - unexplained), unexplained)


def criterion_for(kind: OutputEncoding, right: Array, metric: Metric = Metric.MEAN_SCORE) -> OutputCriterion:
    """Return the criterion of an output.

    Args:
        kind: Encoding of the output's values.
        right: Right answers in the form that `ClassificationCriterion` or `RegressionCriterion` takes.
        metric: The metric that scores subnets.

    Raises:
        MistifyError: As for `ClassificationCriterion`.
    """
    if kind is OutputEncoding.FIGURES:
        return RegressionCriterion(right, absolute=metric is Metric.MAE)
    return ClassificationCriterion(kind, right)


def _distribution(kind: OutputEncoding, predictions: Array) -> Array:
    """Return the probabilities of classes, along the last axis, from predictions."""
    if kind in (OutputEncoding.SIGMOID, OutputEncoding.LOGIT):
        return np.stack([1 - predictions, predictions], axis=-1)
    return predictions
