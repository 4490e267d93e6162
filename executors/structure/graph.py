"""A network as a flat graph of layer calls."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import keras
import numpy.typing as npt

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class TensorRef:
    """A reference, in the arguments of a call, to a tensor of a graph by index."""

    index: int


@dataclass(frozen=True, eq=False)
class Node:
    """One call of a layer.

    Attributes:
        name: The layer's name, unique for each layer of the graph (calls of a shared layer share it).
        layer: The layer itself, with its weights.
        args: Positional arguments, with `TensorRef`s in place of tensors.
        kwargs: Keyword arguments, with `TensorRef`s in place of tensors.
        inputs: Tensors read, in the order of the arguments.
        output: Tensor written.
    """

    name: str
    layer: keras.layers.Layer
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[int, ...]
    output: int

    def call_arguments(self, tensor: Callable[[int], Any]) -> tuple[Any, Any]:
        """Return positional and keyword arguments with tensors in place of their indices."""
        args, kwargs = (
            map_leaves(values, TensorRef, lambda ref: tensor(ref.index))
            for values in (self.args, self.kwargs)
        )
        return args, kwargs

    def argument(self, name: str) -> int | None:
        """Return the index in `inputs` of a parameter of the layer's `call`; None if it is not a tensor."""
        value = inspect.signature(self.layer.call).bind(*self.args, **self.kwargs).arguments.get(name)
        return self.inputs.index(value.index) if isinstance(value, TensorRef) else None

    def rewired(self, number: Callable[[int], int]) -> "Node":
        """Return the same call with tensors renumbered."""

        def change(ref: TensorRef) -> TensorRef:
            return TensorRef(number(ref.index))

        return Node(
            self.name,
            self.layer,
            map_leaves(self.args, TensorRef, change),
            map_leaves(self.kwargs, TensorRef, change),
            tuple(number(tensor) for tensor in self.inputs),
            number(self.output),
        )


@dataclass(frozen=True)
class Graph:
    """The calls of a model in execution order.

    Attributes:
        shapes: Shape of each tensor, batch dimension first (None if it is free).
        dtypes: Type of each tensor.
        inputs: Index of each input tensor -> name of the input.
        outputs: Indices of the output tensors, in order.
    """

    name: str
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    nodes: tuple[Node, ...]
    inputs: Mapping[int, str]
    outputs: tuple[int, ...]

    @property
    def weights(self) -> dict[str, list[npt.NDArray[Any]]]:
        """The weights of every layer, by its name in the graph."""
        return {name: [weight.numpy() for weight in own] for name, own in self.variables.items()}

    @cached_property
    def variables(self) -> dict[str, list[keras.Variable]]:
        """The variables of every layer, by its name in the graph; operations have none."""
        return {name: list(getattr(layer, "weights", ())) for name, layer in self.layers.items()}

    @cached_property
    def layers(self) -> dict[str, keras.layers.Layer]:
        """Every layer once, by its name in the graph."""
        return {node.name: node.layer for node in self.nodes}

    @cached_property
    def frozen(self) -> frozenset[str]:
        """The layers with weights that adaptation must not change."""
        return frozenset(
            name for name, own in self.variables.items() if own and not self.layers[name].trainable
        )

    @cached_property
    def consumers(self) -> dict[int, list[Node]]:
        """The calls that read each tensor."""
        readers: dict[int, list[Node]] = {}
        for node in self.nodes:
            for tensor in node.inputs:
                readers.setdefault(tensor, []).append(node)
        return readers

    def build(
        self,
        make_layer: Callable[[str, keras.layers.Layer], keras.layers.Layer],
        weights: Mapping[str, Sequence[npt.NDArray[Any]]],
    ) -> keras.Model:
        """Call the graph on layers made by `make_layer(name, layer)`, and return a new model.

        Args:
            make_layer: Makes a new, unbuilt layer from a name and a layer of the graph.
            weights: Layer name -> weights; absent layers keep their new weights.
        """
        layers = {name: make_layer(name, layer) for name, layer in self.layers.items()}
        tensors: dict[int, Any] = {
            index: keras.Input(self.shapes[index][1:], dtype=self.dtypes[index], name=name)
            for index, name in self.inputs.items()
        }
        inputs = list(tensors.values())
        for node in self.nodes:
            args, kwargs = node.call_arguments(tensors.__getitem__)
            tensors[node.output] = layers[node.name](*args, **kwargs)
        for name, values in weights.items():
            set_weights(layers[name], values)
        outputs = [tensors[index] for index in self.outputs]
        return keras.Model(_single(inputs), _single(outputs), name=self.name)

    def renamed(self, prefix: str) -> "Graph":
        """Return the same graph with a prefix added to the names of its layers."""
        nodes = (dataclasses.replace(node, name=f"{prefix}{node.name}") for node in self.nodes)
        return dataclasses.replace(self, nodes=tuple(nodes))

    def without(self, removed: Mapping[int, int]) -> "Graph":
        """Return the graph without the calls that write the tensors `removed`, with substitutes for these.

        Calls that are no longer needed are also removed.
        """

        def replace(tensor: int) -> int:
            while tensor in removed:
                tensor = removed[tensor]
            return tensor

        outputs = tuple(map(replace, self.outputs))
        needed, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if node.output in needed and node.output not in removed:
                nodes.append(node.rewired(replace))
                needed.update(nodes[-1].inputs)
        return dataclasses.replace(self, nodes=tuple(reversed(nodes)), outputs=outputs)


def map_leaves(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """Replace the leaves of one kind in nested arguments.

    Args:
        value: Nested dictionaries, lists and tuples of any values.
        kind: The class of the leaves.
        function: Returns the replacement of a leaf.
    """
    if isinstance(value, dict):
        return {key: map_leaves(item, kind, function) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map_leaves(item, kind, function) for item in value)
    return function(value) if isinstance(value, kind) else value


def set_weights(layer: Any, values: Sequence[npt.NDArray[Any]]) -> None:
    """Set the weights of a layer, of either Keras version, and the values derived from them."""
    if values:
        layer.set_weights(values)
    if type(layer).__name__ == "Normalization":
        # Normalization layers compute with constants derived from their weights.
        layer.finalize_state()


def _single(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
