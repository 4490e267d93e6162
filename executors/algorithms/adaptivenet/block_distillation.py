"""The first stage of training a supernet: block-wise distillation from the source (AdaptiveNet 4.2)."""

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
    """The features of the source: each variant learns to compute the same as the blocks that it replaces.

    It reads the source's own features, so that no variant depends on how good another one is (DONNA: Moons et
    al., 2021).

    Args:
        supernet: All its variants learn at each step.
    """

    def __init__(self, supernet: Supernet, setup: TrainingSetup) -> None:
        self._supernet = supernet
        self._inputs = setup.train.inputs

    def arrays(self) -> Mapping[str, Mapping[str, Array]]:
        """Return the inputs."""
        return {"inputs": self._inputs}

    def loss(self, parts: Parts, drawn: Tensors, step: tf.Tensor) -> tf.Tensor:
        """Return the sum over all variants of the mean square distance, over the features' variance."""
        features = [tf.stop_gradient(tensor) for tensor in self._supernet.features(parts["inputs"])]
        with quick_batch_norms(self._supernet.model):
            pairs = self._supernet.outputs_and_targets(features)
        return tf.add_n([_distance(output, target) for output, target in pairs])


def _distance(output: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Return the mean square distance of two tensors, over the variance of the target."""
    variance = tf.math.reduce_variance(target) + keras.config.epsilon()
    return tf.reduce_mean(tf.square(output - target)) / variance
