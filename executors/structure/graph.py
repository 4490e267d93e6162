"""A Keras model as a flat graph of layer calls.

Nested models are inlined: a layer `stem` inside a nested model `backbone` becomes `backbone_stem`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras

Shape = tuple[int | None, ...]
_TENSOR = "__keras_tensor__"


@dataclass(frozen=True)
class TensorRef:
    """A tensor of a graph, by index, where it stands in the arguments of a call."""

    index: int


@dataclass(frozen=True, eq=False)
class Node:
    """One call of a layer.

    Attributes:
        name: The layer's name, unique for each layer of the graph (calls of a shared layer share it).
        layer: The layer itself, with its weights.
        args: Positional arguments, with `TensorRef`s in place of tensors.
        kwargs: Keyword arguments, likewise.
        inputs: Tensors read, in the order of the arguments.
        output: Tensor written.
    """

    name: str
    layer: keras.layers.Layer
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class Graph:
    """The calls of a model in the order in which they run.

    Attributes:
        name: The model's name.
        shapes: Shape of each tensor, batch dimension first (None where it is free).
        dtypes: Type of each tensor.
        nodes: The calls.
        inputs: Tensors given, with the names of the inputs.
        outputs: Tensors returned.
    """

    name: str
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    nodes: tuple[Node, ...]
    inputs: Mapping[int, str]
    outputs: tuple[int, ...]

    @property
    def layers(self) -> dict[str, keras.layers.Layer]:
        """Every layer once, by its name in the graph."""
        return {node.name: node.layer for node in self.nodes}

    def consumers(self) -> dict[int, list[Node]]:
        """The calls that read each tensor."""
        readers: dict[int, list[Node]] = {}
        for node in self.nodes:
            for tensor in node.inputs:
                readers.setdefault(tensor, []).append(node)
        return readers

    def build(self, make_layer: Callable[[str, keras.layers.Layer], keras.layers.Layer]) -> keras.Model:
        """Call the graph anew, on layers made by `make_layer(name, layer)`, into a model of its own."""
        layers = {name: make_layer(name, layer) for name, layer in self.layers.items()}
        tensors: dict[int, Any] = {
            index: keras.Input(self.shapes[index][1:], dtype=self.dtypes[index], name=name)
            for index, name in self.inputs.items()
        }
        inputs = list(tensors.values())
        for node in self.nodes:
            args = _map_leaves(node.args, TensorRef, lambda ref: tensors[ref.index])
            kwargs = _map_leaves(node.kwargs, TensorRef, lambda ref: tensors[ref.index])
            tensors[node.output] = layers[node.name](*args, **kwargs)
        outputs = [tensors[index] for index in self.outputs]
        return keras.Model(_single(inputs), _single(outputs), name=self.name)

    def without(self, removed: Mapping[int, int]) -> "Graph":
        """The graph without the calls that write the tensors `removed`, each read as another tensor."""

        def replace(ref: TensorRef) -> TensorRef:
            index = ref.index
            while index in removed:
                index = removed[index]
            return TensorRef(index)

        nodes = []
        for node in self.nodes:
            if node.output not in removed:
                args = _map_leaves(node.args, TensorRef, replace)
                kwargs = _map_leaves(node.kwargs, TensorRef, replace)
                inputs = tuple(replace(TensorRef(index)).index for index in node.inputs)
                nodes.append(Node(node.name, node.layer, args, kwargs, inputs, node.output))
        outputs = tuple(replace(TensorRef(index)).index for index in self.outputs)
        return Graph(self.name, self.shapes, self.dtypes, tuple(nodes), self.inputs, outputs)


def read_graph(model: keras.Model) -> Graph:
    """Read a functional or sequential model, nested models inlined.

    Raises:
        TypeError: The model is subclassed: Keras does not know its layers.
    """
    reader = _Reader()
    model = _functional(model)
    inputs = {}
    for tensor in model.inputs:
        inputs[reader.add(tuple(tensor.shape), tensor.dtype)] = tensor.name
    outputs = reader.read(model, list(inputs), "")
    return Graph(
        model.name, tuple(reader.shapes), tuple(reader.dtypes), tuple(reader.nodes), inputs, tuple(outputs)
    )


class _Reader:
    """Collects the calls of a model and, recursively, of the models nested in it."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self.dtypes: list[str] = []
        self.nodes: list[Node] = []

    def add(self, shape: Shape, dtype: str) -> int:
        self.shapes.append(shape)
        self.dtypes.append(dtype)
        return len(self.shapes) - 1

    def read(self, model: keras.Model, inputs: list[int], prefix: str) -> list[int]:
        """Read one model that is given the tensors `inputs`; returns its outputs."""
        config = model.get_config()
        operations = {operation.name: operation for operation in model.operations}
        tensors = dict(zip(_history_keys(config["input_layers"]), inputs, strict=True))
        waiting = [
            (entry["name"], index, call)
            for entry in config["layers"]
            for index, call in enumerate(entry["inbound_nodes"])
        ]
        while waiting:
            ready = [item for item in waiting if all(key in tensors for key in _tensor_keys(item[2]))]
            for name, index, call in ready:
                outputs = self._call(operations[name], prefix, call, tensors)
                tensors.update({(name, index, position): out for position, out in enumerate(outputs)})
            waiting = [item for item in waiting if item not in ready]
        return [tensors[key] for key in _history_keys(config["output_layers"])]

    def _call(
        self, operation: Any, prefix: str, call: dict[str, Any], tensors: dict[tuple[str, int, int], int]
    ) -> list[int]:
        def resolve(leaf: dict[str, Any]) -> TensorRef:
            return TensorRef(tensors[_key(leaf)])

        args = _map_leaves(tuple(call["args"]), dict, resolve)
        kwargs = {
            key: value
            for key, value in _map_leaves(call["kwargs"], dict, resolve).items()
            if value is not None and key != "training"
        }
        inputs = [tensors[key] for key in _tensor_keys(call)]
        if isinstance(operation, keras.Model):
            return self.read(_functional(operation), inputs, f"{prefix}{operation.name}_")
        name = f"{prefix}{operation.name}"
        node_outputs = _output_specs(operation, args, kwargs, self.shapes, self.dtypes)
        outputs = [self.add(tuple(spec.shape), spec.dtype) for spec in node_outputs]
        if len(outputs) != 1:
            raise TypeError(f"layer {name} ({type(operation).__name__}) has {len(outputs)} outputs; expected 1")
        self.nodes.append(Node(name, operation, args, kwargs, tuple(inputs), outputs[0]))
        return outputs


def _functional(model: keras.Model) -> keras.Model:
    if isinstance(model, keras.Sequential):
        if not model.built:
            raise TypeError(f"model {model.name} was never built; give it an Input layer")
        return keras.Model(model.inputs, model.outputs, name=model.name)
    if not hasattr(model, "operations"):
        raise TypeError(
            f"model {model.name} is a subclassed {type(model).__name__}; expected a functional or sequential "
            "model, whose layers Keras knows; rebuild it with keras.Model(inputs, outputs)"
        )
    return model


def _output_specs(
    operation: Any, args: Any, kwargs: Any, shapes: list[Shape], dtypes: list[str]
) -> list[keras.KerasTensor]:
    """Shapes and types of what a call returns, found without running it."""

    def symbolic(ref: TensorRef) -> keras.KerasTensor:
        return keras.KerasTensor(shapes[ref.index], dtypes[ref.index])

    spec = operation.compute_output_spec(
        *_map_leaves(args, TensorRef, symbolic), **_map_leaves(kwargs, TensorRef, symbolic)
    )
    return list(keras.tree.flatten(spec))


def _history_keys(entries: Any) -> list[tuple[str, int, int]]:
    """The (layer, call, position) triples in Keras' nested description of a model's inputs or outputs."""
    if isinstance(entries, dict):
        return [key for entry in entries.values() for key in _history_keys(entry)]
    if len(entries) == 3 and isinstance(entries[0], str):
        return [(entries[0], entries[1], entries[2])]
    return [key for entry in entries for key in _history_keys(entry)]


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, dict) and leaf.get("class_name") == _TENSOR


def _key(leaf: dict[str, Any]) -> tuple[str, int, int]:
    name, node, position = leaf["config"]["keras_history"]
    return name, node, position


def _tensor_keys(call: dict[str, Any]) -> list[tuple[str, int, int]]:
    keys: list[tuple[str, int, int]] = []

    def collect(leaf: dict[str, Any]) -> dict[str, Any]:
        keys.append(_key(leaf))
        return leaf

    _map_leaves((call["args"], call["kwargs"]), dict, collect)
    return keys


def _map_leaves(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """Replace the leaves of one kind in nested arguments; a dict counts as a leaf when it is a tensor."""
    if isinstance(value, dict) and not _is_tensor(value):
        return {key: _map_leaves(item, kind, function) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_map_leaves(item, kind, function) for item in value)
    return function(value) if isinstance(value, kind) else value


def _single(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
