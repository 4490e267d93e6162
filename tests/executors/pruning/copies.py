"""Networks with redundant units."""

import keras
import numpy as np

from executors.structure import Role, analyse, widen


def with_copies(model: keras.Model) -> keras.Model:
    """Double the width of a network: odd units copy the previous ones, with halved outgoing weights."""
    wide = widen(analyse(model), 2.0)
    structure = analyse(wide)
    for slot in (slot for group in structure.groups.values() for slot in group.slots):
        variable = structure.graph.layers[slot.layer].weights[slot.weight]
        weights = np.moveaxis(variable.numpy(), slot.axis, 0)
        originals, copies = slot.positions[::2].ravel(), slot.positions[1::2].ravel()
        if slot.role is Role.SUMS:
            weights[originals] /= 2
        weights[copies] = weights[originals]
        variable.assign(np.moveaxis(weights, 0, slot.axis))
    return wide
