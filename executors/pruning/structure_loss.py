"""Structure losses: sparsifying regularizers over channel groups (paper 4.2)."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from executors.structure import ChannelGroup, Role, Structure


class StructureLoss:
    """The structure losses of all groups: `sum_g strength_g * sum_u |gamma_u|` (paper 4.2).

    For a group that passes through batch norms, it is the L1 norm of their scales; otherwise a group lasso
    over the weights that produce each unit. Strengths can change without a new trace.
    """

    def __init__(self, structure: Structure) -> None:
        self._terms = [_magnitude(structure, group) for group in structure.groups.values()]
        self._names = list(structure.groups)
        self._strengths = tf.Variable(np.zeros(len(self._names), np.float32), trainable=False)

    def set_strengths(self, strengths: Mapping[str, float]) -> None:
        """Set the loss per unit of magnitude in each group."""
        self._strengths.assign(np.asarray([strengths[name] for name in self._names], np.float32))

    def __call__(self) -> tf.Tensor:
        """Return the loss of the current weights."""
        terms = tf.stack([term() for term in self._terms])
        return tf.reduce_sum(self._strengths * terms)


def _magnitude(structure: Structure, group: ChannelGroup):  # type: ignore[no-untyped-def]
    layers = structure.graph.layers
    scales = [
        (layers[slot.layer].gamma, slot.positions.ravel())
        for slot in group.slots
        if isinstance(layers[slot.layer], keras.layers.BatchNormalization)
        and layers[slot.layer].weights[slot.weight] is getattr(layers[slot.layer], "gamma", None)
    ]
    if scales:
        # Concatenated groups pass through one batch norm, of which each group has a part.
        return lambda: tf.add_n(
            [
                tf.reduce_sum(tf.abs(tf.gather(tf.convert_to_tensor(scale), positions)))
                for scale, positions in scales
            ]
        )
    makers = [
        (layers[slot.layer].weights[slot.weight], slot.axis, slot.positions)
        for slot in group.slots
        if slot.role is not Role.SUMS and layers[slot.layer].weights[slot.weight].trainable
    ]

    def lasso() -> tf.Tensor:
        squares = tf.zeros(group.size)
        for variable, axis, positions in makers:
            weight = tf.convert_to_tensor(variable)
            others = [place for place in range(len(weight.shape)) if place != axis]
            squares += tf.reduce_sum(tf.gather(tf.reduce_sum(weight**2, others), positions), axis=1)
        return tf.reduce_sum(tf.sqrt(squares + 1e-12))

    return lasso
