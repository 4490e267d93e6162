"""Conversion of a Keras model to a flat graph of layer calls.

Nested models are inlined: a layer `stem` inside a nested model `backbone` becomes `backbone_stem`. Composite
layers and subclassed models are inlined as well if their `call` consists of Keras layers and operations.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras

from executors.structure import keras_internals
from executors.structure.each_step import applied
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Graph, Node, Shape, TensorRef, map_leaves, set_weights
from executors.structure.reading.composites import expanded, masked, parted, subclassed
from executors.structure.reading.operations import as_layer_call, fix_sizes
from executors.structure.reading.results import Absent, several_results
from executors.structure.reading.steps import stepwise

#: The class of models made by `keras.Model(inputs, outputs)`.
_Functional = type(keras.Model(*[keras.Input((1,))] * 2))


def read_graph(model: keras.Model, is_leaf: Callable[[Any], bool] = lambda _: True) -> Graph:
    """Read a model, with nested models and composite layers inlined.

    Args:
        model: A built model.
        is_leaf: Whether a layer is kept as it is, rather than replaced by the calls that it consists of.

    Raises:
        UnsupportedLayerError: A composite layer or a subclassed model cannot be expanded.
        TypeError: A layer has several outputs, or the model was never built.
    """
    reader = _Reader(is_leaf)
    model = _functional(model) if _is_functional(model) else subclassed(model)
    inputs = {}
    for tensor in model.inputs:
        inputs[reader.add(tuple(tensor.shape), tensor.dtype)] = tensor.name
    outputs = reader.read(model, list(inputs), "")
    nodes = _in_order(reader.nodes, list(inputs), outputs, reader.absent)
    number = {tensor: index for index, tensor in enumerate([*inputs, *(node.output for node in nodes)])}
    return Graph(
        model.name,
        tuple(reader.shapes[tensor] for tensor in number),
        tuple(reader.dtypes[tensor] for tensor in number),
        tuple(node.rewired(number.__getitem__) for node in nodes),
        {number[tensor]: name for tensor, name in inputs.items()},
        tuple(number[tensor] for tensor in outputs),
    )


def _in_order(
    nodes: list[Node], inputs: list[int], outputs: list[int], absent: Mapping[int, Absent]
) -> list[Node]:
    """Return the calls that the outputs need, each after the calls that it reads, branch by branch.

    The order depends only on the connections, so that a graph and its copy have the same order.

    Raises:
        UnsupportedLayerError: The outputs need a tensor that is absent.
    """
    writer = {node.output: node for node in nodes}
    done = dict.fromkeys(inputs)
    waiting = outputs[::-1]
    while waiting:
        tensor = waiting[-1]
        if tensor in absent:
            raise UnsupportedLayerError(absent[tensor].reason)
        needed = [] if tensor in done else [item for item in writer[tensor].inputs if item not in done]
        if needed:
            waiting.extend(reversed(needed))
        else:
            done.setdefault(waiting.pop())
    return [writer[tensor] for tensor in done if tensor in writer]


class _Reader:
    """A collector of the calls of a model and, recursively, of its nested models."""

    def __init__(self, is_leaf: Callable[[Any], bool]) -> None:
        self._is_leaf = is_leaf
        self.shapes: list[Shape] = []
        self.dtypes: list[str] = []
        self.nodes: list[Node] = []
        self._layers: dict[str, Any] = {}
        self._owners: dict[tuple[int, ...], str] = {}
        self.absent: dict[int, Absent] = {}

    def add(self, shape: Shape, dtype: str) -> int:
        self.shapes.append(shape)
        self.dtypes.append(dtype)
        return len(self.shapes) - 1

    def _absent(self, result: Absent) -> int:
        tensor = self.add(tuple(result.tensor.shape), result.tensor.dtype)
        self.absent[tensor] = result
        return tensor

    def read(self, model: keras.Model, inputs: list[int], prefix: str) -> list[int]:
        """Read one model, called on the tensors `inputs`; return its outputs."""
        tensors = {id(tensor): index for tensor, index in zip(model.inputs, inputs, strict=True)}
        # The nodes and not get_config(): the config renumbers the calls of nested models differently
        # for readers and outputs, and needs every layer to be serializable.
        calls = [call for call in keras_internals.calls(model) if not call.is_input]
        read = {id(tensor) for call in calls for tensor in call.arguments.keras_tensors}
        read.update(map(id, model.outputs))
        for call in calls:
            used = [id(tensor) in read for tensor in call.output_tensors]
            written = self._call(call.operation, prefix, call.arguments, tensors, used)
            tensors.update(zip(map(id, call.output_tensors), written, strict=True))
        return [tensors[id(tensor)] for tensor in model.outputs]

    def _call(
        self, operation: Any, prefix: str, arguments: Any, tensors: dict[int, int], used: Sequence[bool]
    ) -> list[int]:
        def resolve(tensor: keras.KerasTensor) -> TensorRef:
            return TensorRef(tensors[id(tensor)])

        wanted = f"{prefix}{operation.name}"
        if _is_functional(operation):
            model, values = _functional(operation), _arguments(operation, arguments)
            masks = keras.tree.flatten(arguments.kwargs.get("mask"))
            if any(mask is not None for mask in masks):
                model = masked(model, masks)
                values += [mask for mask in masks if mask is not None]
            return self.read(model, [tensors[id(tensor)] for tensor in values], f"{wanted}_")
        operation, args, kwargs = as_layer_call(operation, arguments.args, arguments.kwargs)
        values = keras.tree.flatten((args, kwargs))
        for item in values:
            if isinstance(item, keras.Variable):
                raise UnsupportedLayerError(
                    f"{wanted!r} is given the weight {item.path!r} directly; expected tensors; "
                    "use the weight inside a layer, and register a handler for it"
                )
        inputs = [tensors[id(item)] for item in values if isinstance(item, keras.KerasTensor)]
        if several := several_results(wanted, operation, arguments, used):
            model, results = several
            read = dict.fromkeys(map(id, arguments.keras_tensors))
            made = self.read(model, [tensors[tensor] for tensor in read], prefix)
            places = dict(zip(map(id, model.outputs), made, strict=True))
            return [self._absent(each) if isinstance(each, Absent) else places[id(each)] for each in results]
        if (parts := parted(operation, arguments)) is not None:
            return self.read(parts, inputs, f"{wanted}_")
        inner = applied(operation)
        if inner is not operation and (isinstance(inner, keras.Model) or not self._is_leaf(inner)):
            known = _is_functional(inner)
            model = stepwise(wanted, _functional(inner) if known else inner, args[0], known)
            return self.read(model, inputs[:1], f"{wanted}_")
        if isinstance(operation, keras.Model) or not self._is_leaf(operation):
            return self.read(expanded(wanted, operation, arguments), inputs, f"{wanted}_")
        args = map_leaves(args, keras.KerasTensor, resolve)
        kwargs = {
            key: value
            for key, value in map_leaves(kwargs, keras.KerasTensor, resolve).items()
            if value is not None and key != "training"
        }
        if inputs:
            fix_sizes(operation, self.shapes[inputs[0]])
        name = self._name(wanted, operation)
        node_outputs = _output_specs(operation, args, kwargs, self.shapes, self.dtypes)
        outputs = [self.add(tuple(spec.shape), spec.dtype) for spec in node_outputs]
        if len(outputs) != 1:
            raise TypeError(
                f"layer {name} ({type(operation).__name__}) has {len(outputs)} outputs; expected 1"
            )
        self.nodes.append(Node(name, operation, args, kwargs, tuple(inputs), outputs[0]))
        return outputs

    def _name(self, wanted: str, operation: Any) -> str:
        """Return one name per layer with weights, and one name per call of a layer without weights.

        The calls of a shared layer without weights, such as `Reshape`, may have different widths later.
        """
        weights = tuple(map(id, getattr(operation, "weights", ())))
        if weights in self._owners:
            return self._known(self._owners[weights], operation)
        name, count = wanted, 1
        while name in self._layers:
            count += 1
            name = f"{wanted}_{count}"
        self._layers[name] = operation
        if weights:
            self._owners[weights] = name
        return name

    def _known(self, name: str, operation: Any) -> str:
        """Return the name of a layer that is called again, perhaps within another wrapper of the same kind.

        Raises:
            UnsupportedLayerError: It is applied to each step in one call only.
        """
        if type(operation) is not type(self._layers[name]):
            raise UnsupportedLayerError(
                f"layer {name!r} is applied both to each step of a sequence and to whole examples; "
                "expected two layers, one for each"
            )
        return name


def _is_functional(layer: Any) -> bool:
    """Check whether a layer is a model with known calls."""
    return isinstance(layer, keras.Sequential) or (
        isinstance(layer, _Functional) and type(layer).call is _Functional.call
    )


def _arguments(model: keras.Model, arguments: Any) -> list[keras.KerasTensor]:
    """Return the arguments of a nested model in the order of its inputs, matching a dict by name."""
    argument = arguments.args[0] if arguments.args else arguments.kwargs["inputs"]
    if isinstance(argument, dict) and not isinstance(model.input, dict):
        return [argument[tensor.name] for tensor in model.inputs]
    return list(keras.tree.flatten(argument))


def _functional(model: keras.Model) -> keras.Model:
    if not model.built:
        raise TypeError(f"model {model.name} was never built; give it an Input layer")
    return keras.Model(model.inputs, model.outputs, name=model.name)


def _output_specs(
    operation: Any, args: Any, kwargs: Any, shapes: list[Shape], dtypes: list[str]
) -> list[keras.KerasTensor]:
    """Return the shapes and types of a call's results, inferred without running it."""

    def symbolic(ref: TensorRef) -> keras.KerasTensor:
        return keras.KerasTensor(shapes[ref.index], dtypes[ref.index])

    spec = operation.compute_output_spec(
        *map_leaves(args, TensorRef, symbolic), **map_leaves(kwargs, TensorRef, symbolic)
    )
    return list(keras.tree.flatten(spec))


def copied(model: keras.Model) -> keras.Model:
    """Return an independent copy of a network with the same weights."""
    copy = keras.models.clone_model(model)
    for layer, source in zip(copy.layers, model.layers, strict=True):
        set_weights(layer, source.get_weights())
    return copy


def calls(model: keras.Model) -> Counter[str]:
    """Return how often each layer of a flat model is called, by its name."""
    return Counter(call.operation.name for call in keras_internals.calls(model))


def tensors(model: keras.Model) -> Iterator[keras.KerasTensor]:
    """Yield the inputs of a flat model, and the outputs of its calls."""
    for call in keras_internals.calls(model):
        yield from call.output_tensors
