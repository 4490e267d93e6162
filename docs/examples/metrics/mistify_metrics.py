"""Three metrics: top-2 accuracy, the pinball loss, and the share of boxes that were found."""

import numpy as np

from executors.outputs.plugged_in import OutputKind, OutputMetric

#: The quantile to predict: nine of ten targets are below it.
QUANTILE = 0.9


class TopTwo(OutputMetric):
    """The share of examples whose class is among the two most probable ones."""

    kinds = (OutputKind.CLASSES,)

    def score(self, predictions, targets):
        """Return the share: predictions are [counted, classes], targets [counted]."""
        first = np.argsort(predictions, axis=1)[:, -2:]
        return float(np.mean((first == targets[:, None]).any(axis=1)))


class Pinball(OutputMetric):
    """The pinball loss: low predictions cost nine times as much as high ones (Koenker and Bassett, 1978)."""

    kinds = (OutputKind.FIGURES,)

    def score(self, predictions, targets):
        """Return the mean loss: predictions and targets are [counted]."""
        short = targets - predictions
        return float(np.mean(np.maximum(QUANTILE * short, (QUANTILE - 1) * short)))


class BoxesFound(OutputMetric):
    """The share of boxes whose intersection over union with the true box is at least a half."""

    kinds = (OutputKind.VECTORS,)

    def score(self, predictions, targets):
        """Return the share: predictions and targets are [counted, (left, top, right, bottom)]."""
        low, high = np.maximum(predictions, targets)[:, :2], np.minimum(predictions, targets)[:, 2:]
        both = _area(np.concatenate([low, high], axis=1))
        either = _area(predictions) + _area(targets) - both
        return float(np.mean(both >= 0.5 * either))


def _area(boxes):
    return np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
