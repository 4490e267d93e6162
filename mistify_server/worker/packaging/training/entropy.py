"""What outputs say of themselves and of targets, beside the loss: how unsure they are, how often right."""

from typing import Any

import tensorflow as tf

from executors.structure.signature import Activation
from executors.training.objectives import IGNORED, SMALLEST, Binary, Categorical, Objective


def confusion(objective: Objective, output: Any) -> Any:
    """The mean entropy of an output that tells classes, or yes or no (Wang et al., 2021)."""
    if isinstance(objective, Categorical):
        told = output if objective.activation is Activation.SOFTMAX else tf.nn.softmax(output)
        return -tf.reduce_mean(tf.reduce_sum(told * tf.math.log(told + SMALLEST), -1))
    told = output if objective.activation is Activation.SIGMOID else tf.sigmoid(output)
    yes, no = told * tf.math.log(told + SMALLEST), (1 - told) * tf.math.log(1 - told + SMALLEST)
    return -tf.reduce_mean(yes + no)


def right(objective: Objective, output: Any, target: Any) -> tuple[Any, Any]:
    """How many targets an output tells, and how many there are: figures and ignored ones do not count."""
    if isinstance(objective, Categorical):
        counts = tf.cast(target != IGNORED, tf.float32)
        told = tf.cast(tf.equal(tf.argmax(output, -1, tf.int32), target), tf.float32)
        return tf.reduce_sum(told * counts), tf.reduce_sum(counts)
    if isinstance(objective, Binary):
        least = 0.5 if objective.activation is Activation.SIGMOID else 0.0
        told = tf.cast(tf.equal(tf.cast(output > least, tf.int32), target), tf.float32)
        return tf.reduce_sum(told), tf.reduce_sum(tf.ones_like(told))
    return tf.constant(0.0), tf.constant(0.0)
