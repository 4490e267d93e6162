"""The importance of the units of each channel group."""

import numpy as np
import numpy.typing as npt

from executors.structure import Keep, Structure

__all__ = ["importances"]

Array = npt.NDArray[np.float64]


def importances(structure: Structure, keep: Keep) -> dict[str, Array]:
    """Return for each group the L2 norms of its units' weights [units], relative to the mean of kept units.

    The weights of all slots count: those that produce the channel, scale it and read it.

    Args:
        keep: The units left in each group.
    """
    relative = {}
    for group in structure.groups.values():
        squares = np.zeros(group.size)
        for slot in group.slots:
            variable = structure.graph.layers[slot.layer].weights[slot.weight]
            if variable.trainable:
                weight = np.moveaxis(np.asarray(variable, np.float64), slot.axis, 0)
                per_position = np.square(weight).reshape(len(weight), -1).sum(axis=1)
                squares += per_position[slot.positions].sum(axis=1)
        norms = np.sqrt(squares)
        relative[group.name] = norms / max(norms[keep[group.name]].mean(), np.finfo(float).tiny)
    return relative
