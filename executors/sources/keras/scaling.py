"""Models with built-in scaling of unscaled numeric inputs."""

from collections.abc import Sequence
from typing import Any

import keras

from executors.structure.composition import model_of
from executors.structure.graph import Graph, Node, TensorRef
from executors.structure.reading.reader import read_graph
from executors.structure.signature import signature_of
from mistify.config.data.preparation import InputScaling
from mistify.parsing.validation import InvalidValue


def scaled(model: keras.Model, scaling: InputScaling | None) -> keras.Model:
    """Return a flat model with a `Rescaling` after each input of figures; the model itself without settings.

    Raises:
        InvalidValue: There is no input of figures, or its number of channels differs from the number of
            values.
    """
    if scaling is None:
        return model
    graph = read_graph(model)
    figures = {tensor.name for tensor in signature_of(model).inputs if tensor.figures}
    inputs = [index for index, name in graph.inputs.items() if name in figures]
    factor, offset = _values(scaling)
    channels = {graph.shapes[index][-1] for index in inputs}
    if not inputs or (isinstance(factor, list) and channels != {len(factor)}):
        raise InvalidValue(
            scaling.model_dump(exclude_defaults=True),
            f"values for {' and '.join(map(str, sorted(map(str, channels))))} channels"
            if inputs
            else "nothing",
            "give one for each channel" if inputs else "remove it: the model has no numeric inputs",
        )
    return model_of(_with_scalings(graph, inputs, factor, offset))


def _values(scaling: InputScaling) -> tuple[Any, Any]:
    """Return factor and offset, common to all channels or per channel [channels]."""
    if scaling.mean is None or scaling.std is None:
        return scaling.factor, scaling.offset
    pairs = list(zip(scaling.mean, scaling.std, strict=True))
    return [1 / std for _, std in pairs], [-mean / std for mean, std in pairs]


def _with_scalings(graph: Graph, inputs: Sequence[int], factor: Any, offset: Any) -> Graph:
    made = {index: len(graph.shapes) + place for place, index in enumerate(inputs)}
    scalings = []
    for index, output in made.items():
        layer = keras.layers.Rescaling(factor, offset, name=f"{graph.inputs[index]}_scaling")
        scalings.append(Node(layer.name, layer, (TensorRef(index),), {}, (index,), output))

    def read(tensor: int) -> int:
        return made.get(tensor, tensor)

    return Graph(
        graph.name,
        graph.shapes + tuple(graph.shapes[index] for index in inputs),
        graph.dtypes + tuple(graph.dtypes[index] for index in inputs),
        (*scalings, *(node.rewired(read) for node in graph.nodes)),
        graph.inputs,
        tuple(map(read, graph.outputs)),
    )
