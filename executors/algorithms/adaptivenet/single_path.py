"""The second stage of supernet training: one random path per step (AdaptiveNet 4.2)."""

from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from executors.algorithms.adaptivenet.space import Subnet
from executors.algorithms.adaptivenet.supernet import Supernet
from executors.data import Array
from executors.training.evaluation import Tensors
from executors.training.objective import SupervisedObjective
from executors.training.setup import TrainingSetup

#: A function that draws a subnet.
Draw = Callable[[np.random.Generator], Subnet]


class SinglePathObjective(SupervisedObjective):
    """Supervised training of subnets, a different one at each step.

    Args:
        supernet: The supernet whose variants are trained. Their batch norms must be frozen: each variant is
            part of many subnets, and packaging folds batch norms into the preceding operators.
        draw: Draws the subnets, never the original network.
        source: The original network.
        seed: Seed for image augmentation.
    """

    def __init__(
        self, supernet: Supernet, draw: Draw, source: keras.Model, setup: TrainingSetup, seed: int
    ) -> None:
        super().__init__(source, setup, seed)
        self._supernet = supernet
        self._draw = draw

    def draws(self, steps: int, rng: np.random.Generator) -> Mapping[str, Array]:
        """Return the paths of the drawn subnets."""
        path = self._supernet.space.path
        return {"path": np.stack([path(self._draw(rng)) for _ in range(steps)])}

    def used(self, drawn: Tensors) -> Sequence[tf.Tensor]:
        """Return for each weight whether the path contains its variant."""
        space, path = self._supernet.space, drawn["path"]
        uses = {}
        for number, weights in enumerate(self._supernet.variables, start=space.blocks):
            end = space.places[number].end
            taken = path[end - 1] == space.ending[end].index(number)
            uses.update({id(weight): taken for weight in weights})
        return [uses[id(weight)] for weight in self._supernet.model.trainable_variables]

    def _outputs(self, inputs: Tensors, drawn: Tensors) -> Tensors:
        return self._supernet.outputs(inputs, drawn["path"])
