"""Masks over the units of channel groups."""

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.structure import Keep, Structure


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
        self.choose(keep)
        self.apply()

    def choose(self, keep: Keep) -> None:
        """Keep these units and cut the others from the next step on; weights stay as they are."""
        self.keep = {**self.keep, **keep}
        for group in self._structure.groups.values():
            for slot in group.slots:
                mask = self._axes.get((slot.layer, slot.weight, slot.axis))
                if mask is not None:
                    values = mask.numpy()
                    values[slot.positions] = self.keep[group.name][:, None]
                    mask.assign(values)

    def apply(self) -> None:
        """Set the weights of cut units to zero."""
        for variable, axis, mask in self._along:
            shape = [1] * len(variable.shape)
            shape[axis] = -1
            variable.assign(tf.convert_to_tensor(variable) * tf.reshape(mask, shape))

    def there(self, variable: keras.Variable) -> npt.NDArray[np.bool_]:
        """Return which of a weight's entries belong to units that are left, of its shape."""
        left = np.ones(variable.shape, bool)
        for masked, axis, mask in self._along:
            if masked is variable:
                left &= np.expand_dims(
                    mask.numpy() > 0, [place for place in range(left.ndim) if place != axis]
                )
        return left
