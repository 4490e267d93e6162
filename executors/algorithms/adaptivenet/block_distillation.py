"""The first stage of supernet training: block-wise distillation from the source (AdaptiveNet 4.2)."""

from collections.abc import Mapping

import keras
import tensorflow as tf

from executors.algorithms.adaptivenet.supernet import Supernet
from executors.data import Array
from executors.training.batch_norm import quick_batch_norms
from executors.training.evaluation import Tensors
from executors.training.objective import Parts, TrainingObjective
from executors.training.setup import TrainingSetup


class BlockDistillation(TrainingObjective):
    """Feature distillation: each variant learns to reproduce the output of the blocks that it replaces.

    Variants read the source's own features, so that no variant depends on the quality of another (DONNA:
    Moons et al., 2021).

    Args:
        supernet: All of its variants are trained at each step.
    """

    def __init__(self, supernet: Supernet, setup: TrainingSetup) -> None:
        self._supernet = supernet
        self._inputs = setup.train.inputs

    def arrays(self) -> Mapping[str, Mapping[str, Array]]:
        """Return the inputs."""
        return {"inputs": self._inputs}

    def loss(self, parts: Parts, drawn: Tensors, step: tf.Tensor) -> tf.Tensor:
        """Return the mean squared error divided by the variance of the features, summed over all variants."""
        features = [tf.stop_gradient(tensor) for tensor in self._supernet.features(parts["inputs"])]
        with quick_batch_norms(self._supernet.model):
            pairs = self._supernet.outputs_and_targets(features)
        return tf.add_n([_distance(output, target) for output, target in pairs])


def _distance(output: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Return the mean squared error between two tensors, divided by the variance of the target."""
    variance = tf.math.reduce_variance(target) + keras.config.epsilon()
    return tf.reduce_mean(tf.square(output - target)) / variance
