"""A head that answers all tasks at once, for training a network before its gates are set."""

from typing import Final

import keras

from executors.structure import Structure

layers = keras.layers

#: Layers that may make the output of a network.
_HEADS: Final = (layers.Dense, layers.Conv1D, layers.Conv2D, layers.Conv3D)

#: Name of the second output.
ANSWERS: Final = "nnfactory-answers"


def answering(gated: keras.Model, source: Structure, count: int) -> keras.Model:
    """Return a network with gates and a second output: a logit for each of several tasks.

    The new head reads what the last dense layer or convolution of the network reads, averaged over positions
    if there are any.

    Args:
        gated: The network with gates, whose layers are used.
        source: The structure of the network without gates.
        count: Number of tasks.
    """
    heads = [node.name for node in source.graph.nodes if isinstance(node.layer, _HEADS)]
    features = gated.get_layer(heads[-1]).input if heads else gated.output
    if len(features.shape) > 2:
        features = layers.Reshape((-1, features.shape[-1]), name="nnfactory-positions")(features)
        features = layers.GlobalAveragePooling1D(name="nnfactory-pooled")(features)
    answers = layers.Dense(count, name=ANSWERS)(features)
    return keras.Model(gated.inputs, [*gated.outputs, answers])
