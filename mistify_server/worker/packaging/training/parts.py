"""Selection of the trained weights: the whole network, its last blocks, its head, or biases besides."""

from collections.abc import Sequence

import keras

from executors.structure.edits.splitting import blocks
from executors.structure.graph import Graph
from executors.structure.reading.reader import read_graph
from mistify.config.package.tuning import TuningConfig

#: Names of weights that scale or shift channels.
_SCALES_AND_SHIFTS = frozenset({"beta", "bias", "gamma", "scale"})


def trainable_layers(graph: Graph, tuning: TuningConfig) -> set[str]:
    """Return the names of the layers of which all weights are trained."""
    if tuning.trainable == "none":
        return set()
    if tuning.trainable == "network":
        return {name for name, weights in graph.variables.items() if weights}
    last = tuning.trainable if isinstance(tuning.trainable, int) else 1
    return {name for block in blocks(graph)[-last:] for name in block}


def trainable_weights(model: keras.Model, tuning: TuningConfig) -> dict[str, keras.Variable]:
    """Return the trained weights of a model, by names such as "dense/kernel".

    Weights that Keras does not train, such as moving averages, are excluded.
    """
    graph = read_graph(model)
    layers = trainable_layers(graph, tuning)
    trained = {id(variable) for variable in model.trainable_variables}
    weights: dict[str, keras.Variable] = {}
    for layer, variables in graph.variables.items():
        for variable in variables:
            name = _unused(f"{layer}/{_within(variable.path)}", weights)
            sparse = tuning.trainable == "biases" and bool(scales_and_shifts([name]))
            if id(variable) in trained and (layer in layers or sparse):
                weights[name] = variable
    return weights


def scales_and_shifts(names: Sequence[str]) -> list[str]:
    """Return the names of the weights that scale or shift channels."""
    return [name for name in names if name.rpartition("/")[2].rstrip("0123456789_") in _SCALES_AND_SHIFTS]


def _within(path: str) -> str:
    """Return a weight's path in its layer, such as "query/kernel" for "encoder/attention/query/kernel"."""
    return "/".join(path.split("/")[1:])


def _unused(name: str, taken: dict[str, keras.Variable]) -> str:
    """Return a unique name."""
    unique, count = name, 1
    while unique in taken:
        count += 1
        unique = f"{name}_{count}"
    return unique
