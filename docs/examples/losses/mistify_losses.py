"""Two losses: cross entropy with a higher cost for one class, and the overlap of boxes."""

import tensorflow as tf

from executors.outputs.plugged_in import OutputKind, OutputLoss

#: The class that must not be missed, and its weight relative to other classes.
ALARM, COST = 1, 5.0

#: Added to keep logarithms and ratios finite.
SMALL = 1e-7


class CostlyMisses(OutputLoss):
    """Cross entropy, weighted by class."""

    kinds = (OutputKind.CLASSES,)

    def loss(self, predictions, targets, counts):
        """Return the weighted mean: predictions are [n, classes], targets [n]."""
        weights = counts * tf.where(targets == ALARM, COST, 1.0)
        right = tf.reduce_sum(predictions * tf.one_hot(targets, predictions.shape[-1]), axis=-1)
        return tf.reduce_sum(-weights * tf.math.log(right + SMALL)) / (tf.reduce_sum(weights) + SMALL)


class BoxOverlap(OutputLoss):
    """One minus the generalized intersection over union of boxes (Rezatofighi et al., 2019)."""

    kinds = (OutputKind.VECTORS,)

    def loss(self, predictions, targets, counts):
        """Return the mean over the counted boxes [n, ..., (left, top, right, bottom)]."""
        (left, top, right, bottom), true = tf.unstack(predictions, axis=-1), tf.unstack(targets, axis=-1)
        own, theirs = area(left, top, right, bottom), area(*true)
        both = area(
            tf.maximum(left, true[0]),
            tf.maximum(top, true[1]),
            tf.minimum(right, true[2]),
            tf.minimum(bottom, true[3]),
        )
        around = area(
            tf.minimum(left, true[0]),
            tf.minimum(top, true[1]),
            tf.maximum(right, true[2]),
            tf.maximum(bottom, true[3]),
        )
        either = own + theirs - both
        overlap = both / (either + SMALL) - (around - either) / (around + SMALL)
        known = tf.reduce_min(counts, axis=-1)
        return tf.reduce_sum(known * (1 - overlap)) / (tf.reduce_sum(known) + SMALL)


def area(left, top, right, bottom):
    """Return the areas of boxes, 0 for empty ones."""
    return tf.maximum(right - left, 0.0) * tf.maximum(bottom - top, 0.0)
