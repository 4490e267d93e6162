"""What a supernet learns: features of the network first, then its outputs along paths (AdaptiveNet 4.2)."""

from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from executors.algorithms.adaptivenet.space import Subnet
from executors.algorithms.adaptivenet.supernet import Supernet
from executors.data import Array
from executors.training.batch_norm import quick_batch_norms
from executors.training.evaluation import Tensors
from executors.training.lessons import Lesson, OutputLesson, Parts
from executors.training.setup import TrainingSetup

#: Draws a subnet.
Draw = Callable[[np.random.Generator], Subnet]


class FeatureLesson(Lesson):
    """The features of the network: each variant learns to compute what the blocks do that it replaces.

    It reads the features of the network itself, so that no variant has to wait until another one is good
    (DONNA: Moons et al., 2021).

    Args:
        supernet: Whose variants learn, all at each step.
        setup: Has the data.
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


class PathLesson(OutputLesson):
    """The outputs of subnets, another one at each step; the variants that it has learn.

    Args:
        supernet: Whose variants learn. Their batch norms have to be frozen: they serve in many subnets, and
            are part of the operators before them once packaged.
        draw: Draws the subnets, none of which is the network itself.
        source: The network that it is made of.
        setup: Data and settings.
        seed: Where the changes of the images start from.
    """

    def __init__(
        self, supernet: Supernet, draw: Draw, source: keras.Model, setup: TrainingSetup, seed: int
    ) -> None:
        super().__init__(source, setup, seed)
        self._supernet = supernet
        self._draw = draw

    def draws(self, steps: int, rng: np.random.Generator) -> Mapping[str, Array]:
        """Return the paths of subnets."""
        path = self._supernet.space.path
        return {"path": np.stack([path(self._draw(rng)) for _ in range(steps)])}

    def used(self, drawn: Tensors) -> Sequence[tf.Tensor]:
        """Return for each weight whether the path goes through its variant."""
        space, path = self._supernet.space, drawn["path"]
        uses = {}
        for number, weights in enumerate(self._supernet.variables, start=space.blocks):
            end = space.places[number].end
            taken = path[end - 1] == space.ending[end].index(number)
            uses.update({id(weight): taken for weight in weights})
        return [uses[id(weight)] for weight in self._supernet.model.trainable_variables]

    def _outputs(self, inputs: Tensors, drawn: Tensors) -> Tensors:
        return self._supernet.outputs(inputs, drawn["path"])


def _distance(output: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Return the mean square distance of two tensors, over the variance of the target."""
    variance = tf.math.reduce_variance(target) + keras.config.epsilon()
    return tf.reduce_mean(tf.square(output - target)) / variance
