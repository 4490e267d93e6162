"""Fingerprints of kinds of networks: networks of one kind lose about as much accuracy when they are cut."""

import hashlib
from typing import Final

import keras

from executors.structure.each_step import applied
from executors.structure.graph import Graph

layers = keras.layers

#: Kind -> its layers. A network's kind is the first one with a layer in the network.
_KINDS: Final = {
    "transformer": (layers.MultiHeadAttention, layers.GroupQueryAttention, layers.Attention),
    "recurrent": (layers.RNN, layers.Bidirectional),
    "depthwise": (
        layers.DepthwiseConv1D,
        layers.DepthwiseConv2D,
        layers.SeparableConv1D,
        layers.SeparableConv2D,
    ),
    "convolutional": (
        layers.Conv1D,
        layers.Conv2D,
        layers.Conv3D,
        layers.Conv1DTranspose,
        layers.Conv2DTranspose,
        layers.Conv3DTranspose,
    ),
}


def kind_of(graph: Graph) -> str:
    """Return the kind of a network: `transformer`, `recurrent`, `depthwise`, `convolutional` or `dense`."""
    used = list(map(applied, graph.layers.values()))
    return next(
        (kind for kind, members in _KINDS.items() if any(isinstance(layer, members) for layer in used)),
        "dense",
    )


def digest_of(graph: Graph) -> str:
    """Return a digest of a network's layers and weights that does not depend on names."""
    digest = hashlib.sha256()
    for node in graph.nodes:
        digest.update(f"{type(node.layer).__name__} {node.inputs} {node.output}\n".encode())
    for arrays in graph.weights.values():
        for array in arrays:
            digest.update(f"{array.dtype} {array.shape}\n".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()
