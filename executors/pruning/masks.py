"""Masks over the units of channel groups."""

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.pruning.masked_norms import MaskedNorm
from executors.structure import Keep, Structure


class Masks:
    """Masks that hold the weights of cut units at zero while the network keeps its physical widths.

    A masked network computes the same as the narrowed one, without a new trace for each cut. Channels under a
    layer or group norm can be masked only if the network has been made with `with_masked_norms`.
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
        self._norms = [
            (node.layer.shown, channels)
            for node in structure.graph.nodes
            if isinstance(node.layer, MaskedNorm) and (channels := structure.channels[node.output]).units
        ]

    @property
    def widths(self) -> dict[str, int]:
        """The number of remaining units in each group."""
        return {name: int(mask.sum()) for name, mask in self.keep.items()}

    def set(self, keep: Keep) -> None:
        """Keep these units and cut the others, immediately and after every step."""
        self.choose(keep)
        self.apply()

    def choose(self, keep: Keep) -> None:
        """Keep these units and cut the others from the next step on, without changing weights now."""
        self.keep = {**self.keep, **keep}
        values = {key: np.ones(mask.shape, np.float32) for key, mask in self._axes.items()}
        for group in self._structure.groups.values():
            for slot in group.slots:
                key = (slot.layer, slot.weight, slot.axis)
                if key in values:
                    values[key][slot.positions] = self.keep[group.name][:, None]
        for key, mask in self._axes.items():
            mask.assign(values[key])
        for shown, channels in self._norms:
            shown.assign(channels.left(self.keep).astype(np.float32))

    def apply(self) -> None:
        """Set the weights of cut units to zero."""
        for variable, axis, mask in self._along:
            variable.assign(tf.convert_to_tensor(variable) * _along(axis, mask, variable))

    def left(self, variable: keras.Variable) -> tf.Tensor:
        """Return a mask with the shape of a weight: 1 for entries of the remaining units, 0 elsewhere."""
        left = tf.ones(variable.shape)
        for masked, axis, mask in self._along:
            if masked is variable:
                left *= _along(axis, mask, variable)
        return left


def _along(axis: int, mask: tf.Variable, variable: keras.Variable) -> tf.Tensor:
    """Return a mask [units], reshaped to broadcast along an axis of a weight."""
    shape = [1] * len(variable.shape)
    shape[axis] = -1
    return tf.reshape(mask, shape)
