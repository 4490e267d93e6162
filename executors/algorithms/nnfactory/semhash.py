"""Improved SemHash: discrete gates that have gradients (NN-Factory 3.4; Kaiser and Bengio, 2018)."""

import tensorflow as tf


def semhash(logits: tf.Tensor, discrete: tf.Tensor) -> tf.Tensor:
    """Return gates as in training, of the shape of the logits.

    Discrete ones, `1(w > 0)`, have the gradient of continuous ones, `max(0, min(1, 1.2 sigmoid(w) - 0.1))`.

    Args:
        logits: Gate weights w [examples, units].
        discrete: Whether the gates of an example are discrete or continuous [examples]; in training each half
            of the time.
    """
    continuous = tf.clip_by_value(1.2 * tf.sigmoid(logits) - 0.1, 0.0, 1.0)
    rounded = tf.cast(logits > 0, tf.float32)
    straight_through = continuous + tf.stop_gradient(rounded - continuous)
    return tf.where(discrete[:, None], straight_through, continuous)


def pruned(gates: tf.Tensor, logits: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Return gates without those of the lowest weights beyond the limits, which slices have to close as well.

    So a network learns to do with the units that its slices keep. Gradients are those of all gates.

    Args:
        gates: The gates [examples, units].
        logits: Gate weights [examples, units].
        limits: The largest share of units that may be open [examples].
    """
    units = logits.shape[1]
    allowed = tf.maximum(tf.cast(limits * units + 1e-4, tf.int32), 1)
    ranked = tf.sort(logits, direction="DESCENDING")
    lowest = tf.gather(ranked, allowed - 1, axis=1, batch_dims=1)[:, None]
    return gates - tf.stop_gradient(tf.where(logits < lowest, gates, tf.zeros_like(gates)))
