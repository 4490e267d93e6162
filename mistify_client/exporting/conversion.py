"""Conversion of a LiteRT network to ONNX."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import onnx
from onnx import ModelProto, NodeProto, helper

from mistify.version import installed_version
from mistify.wording import listed
from mistify_client.exporting import operators
from mistify_client.exporting.builder import Argument, Builder
from mistify_client.exporting.dilation import with_dilations
from mistify_client.exporting.errors import NotExportableError
from mistify_client.exporting.interface import Interface, Port
from mistify_client.exporting.network import Network, Operator, read
from mistify_client.exporting.normalization import with_layer_norms
from mistify_client.exporting.registry import OPERATORS, Call
from mistify_client.exporting.repetition import with_repetitions
from mistify_client.exporting.shapes import BatchSize, Shape
from mistify_client.exporting.types import onnx_type
from mistify_client.exporting.values import Value, in_order

__all__ = ["converted", "operators"]

#: Versions of ONNX's operators and of its file format, which all common runtimes read.
OPSET: Final = 17
_FORMAT: Final = 8

#: The name of the free batch size.
_BATCH: Final = "batch"


def converted(content: bytes, signature: str, interface: Interface, about: Mapping[str, str]) -> ModelProto:
    """Convert the graph of a signature, with its weights in float32 and a free batch size.

    Args:
        content: A `.tflite` file in float32 or float16.
        signature: A signature whose inputs have a batch as their first axis.
        interface: The names and layouts of inputs and outputs, in the order of the file.
        about: Metadata of the file.

    Raises:
        NotExportableError: An operator has no equivalent in ONNX.
    """
    network = with_layer_norms(with_repetitions(with_dilations(read(content, signature))))
    check_operators(network)
    return _Conversion(network, interface).model(about)


def checked(model: ModelProto) -> bytes:
    """Return the content of a file, after ONNX's own checks.

    Raises:
        ValueError: They report a mistake.
    """
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    content: bytes = model.SerializeToString()
    return content


def check_operators(network: Network) -> None:
    """Refuse all operators without an equivalent at once.

    Raises:
        NotExportableError: There are some.
    """
    unknown: dict[str, list[Operator]] = {}
    for operator in network.operators:
        if operator.kind not in OPERATORS:
            unknown.setdefault(operator.kind, []).append(operator)
    if unknown:
        raise NotExportableError(
            listed([
                described(first) + (f" and {len(others):,} more" if others else "")
                for first, *others in unknown.values()
            ])
        )  # fmt: skip


def described(operator: Operator) -> str:
    """Return an operator with its place, for messages."""
    return f"{operator.kind} at {operator.name.partition(';')[0]}"


class _Conversion:
    def __init__(self, network: Network, interface: Interface) -> None:
        self._network = network
        self._inputs = _ports(network.inputs, interface)
        self._outputs = _ports(network.outputs, interface)
        names = [port.name for port in (*self._inputs.values(), *self._outputs.values())]
        first, port = next(iter(self._inputs.items()))
        axes = port.axes or in_order(len(network.shapes[network.inputs[first]]))
        self._builder = Builder(names, port.name, axes.index(0))
        self._values: dict[int, Argument] = dict(network.constants)

    def model(self, about: Mapping[str, str]) -> ModelProto:
        inputs = [self._input(name, port) for name, port in self._inputs.items()]
        names = {self._network.outputs[name]: port.name for name, port in self._outputs.items()}
        for operator in self._network.operators:
            self._builder.enter(names.get(operator.outputs[0], operator.name))
            made = self._made(operator)
            self._values.update(zip(operator.outputs, made, strict=True))
        outputs = [self._output(name, port) for name, port in self._outputs.items()]
        nodes = _needed(self._builder.nodes, [output.name for output in outputs])
        used = {name for node in nodes for name in node.input}
        graph = helper.make_graph(
            nodes, "network", inputs, outputs,
            [tensor for name, tensor in self._builder.weights.items() if name in used],
        )  # fmt: skip
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_FORMAT,
            producer_name="mistify",
            producer_version=installed_version(),
        )
        helper.set_model_props(model, dict(about))
        return model

    def _made(self, operator: Operator) -> Sequence[Value]:
        network = self._network
        call = Call(
            operator,
            [self._argument(number) for number in operator.inputs],
            [network.shapes[number] for number in operator.outputs],
            [network.types[number] for number in operator.outputs],
        )
        try:
            made = OPERATORS[operator.kind](self._builder, call)
        except NotExportableError as error:
            raise NotExportableError(f"{described(operator)}: {error}") from error
        return made if isinstance(made, list) else [made]

    def _argument(self, number: int) -> Argument | None:
        if number in self._network.repeated and number not in self._values:
            one = self._network.repeated[number]
            self._values[number] = self._builder.expanded(one, self._network.shapes[number])
        return self._values.get(number)

    def _input(self, name: str, port: Port) -> Any:
        number = self._network.inputs[name]
        shape, dtype = self._network.shapes[number], self._network.types[number]
        axes = port.axes or in_order(len(shape))
        value = Value(port.name, shape, axes)
        if port.dtype not in (None, dtype):
            self._builder.enter(port.name)
            value = value.like(self._builder.node("Cast", value, to=onnx_type(dtype)))
        self._values[number] = value
        return _declared(port.name, value.placed, port.dtype or dtype)

    def _output(self, name: str, port: Port) -> Any:
        number = self._network.outputs[name]
        argument, builder = self._argument(number), self._builder
        if argument is None:
            raise NotExportableError(f"the output {name} depends on nothing but the batch size")
        builder.enter(port.name)
        shape, dtype = self._network.shapes[number], self._network.types[number]
        value = builder.arranged(argument, port.axes or in_order(len(shape)))
        if port.dtype not in (None, dtype):
            value = value.like(builder.node("Cast", value, to=onnx_type(port.dtype or dtype)))
        builder.finish(value.name, port.name)
        return _declared(port.name, value.placed, port.dtype or dtype)


def _declared(name: str, shape: Shape, dtype: str) -> Any:
    sizes = [_BATCH if size == BatchSize() else size if isinstance(size, int) else None for size in shape]
    return helper.make_tensor_value_info(name, onnx_type(dtype), sizes)


def _ports(names: Iterable[str], interface: Interface) -> Mapping[str, Port]:
    """Return the ports of inputs or outputs, in the order of the interface."""
    wanted = {name: at for at, name in enumerate(interface)}
    ordered = sorted(names, key=lambda name: wanted.get(name, len(wanted)))  # LiteRT sorts them by name
    return {name: interface.get(name, Port(name)) for name in ordered}


def _needed(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """Return the nodes that outputs need, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]
