"""What the sparsifying algorithms share: unit importances, structure losses, and masks between cuts."""

from collections.abc import Mapping

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.structure import ChannelGroup, Keep, Role, Structure

Array = npt.NDArray[np.float64]


def importances(structure: Structure, keep: Keep) -> dict[str, Array]:
    """For each group the L2 norm of everything that belongs to each unit, over the mean of those kept.

    Weights of every slot count: what makes the channel, what scales it, and what reads it.
    """
    found = {}
    for group in structure.groups.values():
        squares = np.zeros(group.size)
        for slot in group.slots:
            variable = structure.graph.layers[slot.layer].weights[slot.weight]
            if variable.trainable:
                weight = np.moveaxis(np.asarray(variable, np.float64), slot.axis, 0)
                per_position = np.square(weight).reshape(len(weight), -1).sum(axis=1)
                squares += per_position[slot.positions].sum(axis=1)
        norms = np.sqrt(squares)
        found[group.name] = norms / max(norms[keep[group.name]].mean(), np.finfo(float).tiny)
    return found


class StructureLoss:
    """The structure losses of all groups: `sum_g strength_g * sum_u |gamma_u|` (paper 4.2, MorphNet).

    Where a group passes through batch norms, the L1 norm of their scales; elsewhere a group lasso over
    the weights that make each unit. Strengths can change without a new trace.
    """

    def __init__(self, structure: Structure) -> None:
        self._terms = [_magnitude(structure, group) for group in structure.groups.values()]
        self._names = list(structure.groups)
        self._strengths = tf.Variable(np.zeros(len(self._names), np.float32), trainable=False)

    def set_strengths(self, strengths: Mapping[str, float]) -> None:
        """How much a unit of magnitude costs in each group."""
        self._strengths.assign(np.asarray([strengths[name] for name in self._names], np.float32))

    def __call__(self) -> tf.Tensor:
        """The loss, from the weights as they are."""
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
        # What is concatenated passes through one batch norm, of which each group has a part.
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
            others = [other for other in range(len(weight.shape)) if other != axis]
            squares += tf.reduce_sum(tf.gather(tf.reduce_sum(weight**2, others), positions), axis=1)
        return tf.reduce_sum(tf.sqrt(squares + 1e-12))

    return lasso


class Masks:
    """Holds the weights of cut units at zero while the network keeps its physical widths.

    A masked network computes what the narrowed one computes, without a new trace for each cut.
    """

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self.keep: dict[str, npt.NDArray[np.bool_]] = {
            name: np.ones(group.size, bool) for name, group in structure.groups.items()
        }
        self._along: list[tuple[keras.Variable, int, tf.Variable]] = []
        self._axes: dict[tuple[str, int, int], tf.Variable] = {}
        for group in structure.groups.values():
            for slot in group.slots:
                key = (slot.layer, slot.weight, slot.axis)
                variable = structure.graph.layers[slot.layer].weights[slot.weight]
                if key not in self._axes and variable.trainable:
                    self._axes[key] = tf.Variable(
                        np.ones(variable.shape[slot.axis], np.float32), trainable=False
                    )
                    self._along.append((variable, slot.axis, self._axes[key]))

    @property
    def widths(self) -> dict[str, int]:
        """Units that are left of each group."""
        return {name: int(mask.sum()) for name, mask in self.keep.items()}

    def set(self, keep: Keep) -> None:
        """Keep these units and cut the others, at once and after every step."""
        self.keep = {**self.keep, **keep}
        for group in self._structure.groups.values():
            for slot in group.slots:
                mask = self._axes.get((slot.layer, slot.weight, slot.axis))
                if mask is not None:
                    values = mask.numpy()
                    values[slot.positions] = self.keep[group.name][:, None]
                    mask.assign(values)
        self.apply()

    def apply(self) -> None:
        """Set the weights of cut units to zero."""
        for variable, axis, mask in self._along:
            shape = [1] * len(variable.shape)
            shape[axis] = -1
            variable.assign(tf.convert_to_tensor(variable) * tf.reshape(mask, shape))
