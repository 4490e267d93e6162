"""Scales and shifts of units as part of the weights of the layer that makes them."""

import keras
import numpy as np
import numpy.typing as npt

from executors.algorithms.nnfactory.gates import GatedGroup
from executors.structure import Role, Structure

Floats = npt.NDArray[np.float32]


def modulate(network: keras.Model, whole: Structure, group: GatedGroup, scale: Floats, shift: Floats) -> None:
    """Scale and shift the units of a group, in front of their activation, by changing weights in place.

    A batch norm takes them up in its own scales and shifts, any other layer in kernel and bias.

    Args:
        network: A slice of a network, with its layers' names.
        whole: The structure of the network.
        group: A group of the network.
        scale: A factor for each of its units in the slice [units].
        shift: A summand for each of its units in the slice [units].
    """
    writer = next((node for node in whole.graph.nodes if node.output == group.modulated), None)
    if writer is None:
        return
    layer = network.get_layer(writer.name)
    if isinstance(layer, keras.layers.BatchNormalization):
        layer.gamma.assign(np.asarray(layer.gamma) * scale)
        layer.beta.assign(np.asarray(layer.beta) * scale + shift)
        return
    for slot in whole.groups[group.name].slots:
        if slot.layer == writer.name and slot.role is Role.MAKES:
            weight = layer.weights[slot.weight]
            along = [-1 if axis == slot.axis else 1 for axis in range(len(weight.shape))]
            weight.assign(np.asarray(weight) * scale.reshape(along))
    layer.bias.assign(np.asarray(layer.bias) + shift)
