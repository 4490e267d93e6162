"""A network that answers all tasks at once, for training a source before it gets gates."""

from dataclasses import replace

import keras

from executors.structure import Structure, model_of

layers = keras.layers


def answering(source: Structure, count: int) -> keras.Model:
    """Return a copy of a network with a new head: a logit for each of several tasks.

    The new head reads what the last dense layer or convolution of the network reads, averaged over positions
    if there are any. All other layers keep their names.
    """
    graph = source.graph
    heads = [node for node in graph.nodes if isinstance(node.layer, layers.Dense | layers.Conv2D)]
    read = heads[-1].inputs[0] if heads else graph.outputs[0]
    trunk = model_of(replace(graph, outputs=(read,)))
    features = trunk.output
    if len(features.shape) > 2:
        features = layers.Reshape((-1, features.shape[-1]), name="nnfactory-positions")(features)
        features = layers.GlobalAveragePooling1D(name="nnfactory-pooled")(features)
    return keras.Model(trunk.inputs, layers.Dense(count, name="nnfactory-answers")(features))
