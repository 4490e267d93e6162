"""Masked means that are defined even if a mask leaves no steps, as for a text without tokens."""

from typing import Any

import keras
from typing_extensions import override

from executors.structure.reading.reader import read_graph


class _FiniteMean(keras.layers.GlobalAveragePooling1D):  # type: ignore[misc]  # Keras has no types
    """The mean over the steps that a mask leaves; zeros instead of 0 / 0 if it leaves none."""

    @override
    def call(self, inputs: Any, mask: Any) -> Any:
        kept = keras.ops.expand_dims(mask, -1)
        steps = keras.ops.where(keras.ops.cast(kept, "bool"), inputs, 0)
        count = keras.ops.sum(keras.ops.cast(kept, inputs.dtype), axis=1, keepdims=self.keepdims)
        return keras.ops.sum(steps, axis=1, keepdims=self.keepdims) / keras.ops.maximum(count, 1)


def with_finite_means(model: keras.Model) -> keras.Model:
    """Return a network whose masked means are zero for examples without any steps.

    Keras divides by the number of steps, which gives NaN for zero steps, and LiteRT refuses the integer
    division. The outputs for all other examples are unchanged.
    """
    graph = read_graph(model)
    means = {
        node.name
        for node in graph.nodes
        if type(node.layer) is keras.layers.GlobalAveragePooling1D and node.argument("mask") is not None
    }
    if not means:
        return model

    def make_layer(name: str, layer: keras.layers.Layer) -> keras.layers.Layer:
        kind = _FiniteMean if name in means else type(layer)
        return kind.from_config({**layer.get_config(), "name": name})

    return graph.build(make_layer, graph.weights)
