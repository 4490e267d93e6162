"""Entropy and accuracy of outputs, made of operations for training networks."""

from typing import Any

import tensorflow as tf

from executors.outputs.objectives import IGNORED, SMALLEST, Binary, Categorical, OutputObjective
from executors.structure.signature import Activation


def mean_entropy(objective: OutputObjective, output: Any) -> Any:
    """Return the mean entropy of a multi-class or binary output, [] in nats (Wang et al., 2021)."""
    if isinstance(objective, Categorical):
        shares = output if objective.activation is Activation.SOFTMAX else tf.nn.softmax(output)
        return -tf.reduce_mean(tf.reduce_sum(shares * tf.math.log(shares + SMALLEST), -1))
    share = output if objective.activation is Activation.SIGMOID else tf.sigmoid(output)
    yes, no = share * tf.math.log(share + SMALLEST), (1 - share) * tf.math.log(1 - share + SMALLEST)
    return -tf.reduce_mean(yes + no)


def correct(objective: OutputObjective, output: Any, target: Any) -> tuple[Any, Any]:
    """Return the number of correctly predicted targets, and the number of targets that count.

    Numeric targets are neither correct nor wrong, and ignored targets do not count.

    Args:
        output: [n, ...].
        target: [n, ...].
    """
    counts = tf.cast(target != IGNORED, tf.float32)
    if isinstance(objective, Categorical):
        equal = tf.cast(tf.equal(tf.argmax(output, -1, tf.int32), target), tf.float32)
        return tf.reduce_sum(equal * counts), tf.reduce_sum(counts)
    if isinstance(objective, Binary):
        least = 0.5 if objective.activation is Activation.SIGMOID else 0.0
        equal = tf.cast(tf.equal(tf.cast(output > least, tf.int32), target), tf.float32)
        return tf.reduce_sum(equal * counts), tf.reduce_sum(counts)
    return tf.constant(0.0), tf.constant(0.0)
