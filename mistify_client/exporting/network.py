"""The graph of a LiteRT network as the export needs it: shapes with a free batch, and all constants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from ai_edge_litert.tools import flatbuffer_utils

from mistify.litert import Interpreter, OpResolverType
from mistify.tflite.combining import names_of, read_network
from mistify_client.exporting.errors import NotExportableError
from mistify_client.exporting.shapes import BatchSize, Shape, Size

Array: TypeAlias = npt.NDArray[Any]

#: Two batch sizes: what differs between them depends on the batch.
_BATCHES: Final = (2, 3)


@dataclass(frozen=True)
class Operator:
    """An operator of a network.

    Attributes:
        kind: LiteRT's name, such as `CONV_2D`.
        name: The name of the tensor that it computes, which contains the name of the original layer.
        inputs: Numbers of the tensors that it reads; -1 for an optional one that is missing.
        outputs: Numbers of the tensors that it computes.
        options: Its attributes; None if it has none.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any


@dataclass(frozen=True)
class Network:
    """The graph of a signature.

    Attributes:
        operators: The operators that depend on the inputs, in order.
        inputs: Name -> number of the tensor.
        outputs: Name -> number of the tensor.
        shapes: Number of a tensor -> its shape.
        types: Number of a tensor -> NumPy's name of its type.
        constants: Number of a tensor -> its value, if neither the inputs nor the batch size change it.
        repeated: Number of a tensor -> its value for one example, if it is the same for all examples.
        sizes: Tensors that are computed from the batch size, and have no other use than as a shape.
    """

    operators: Sequence[Operator]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    shapes: Mapping[int, Shape]
    types: Mapping[int, str]
    constants: Mapping[int, Array]
    repeated: Mapping[int, Array]
    sizes: frozenset[int]


def read(content: bytes, signature: str) -> Network:
    """Read the graph of a signature.

    LiteRT runs it for two batch sizes, because its file does not contain the shapes that are computed at run
    time.

    Args:
        content: A `.tflite` file in float32 or float16.
        signature: A signature whose inputs have a batch as their first axis.

    Raises:
        NotExportableError: There is no such signature, LiteRT cannot run it, or a size is no multiple of the
            batch size.
    """
    model = read_network(content)
    chosen = next((one for one in model.signatureDefs if one.signatureKey.decode() == signature), None)
    if chosen is None:
        raise NotExportableError(f"it has no signature {signature}")
    graph = model.subgraphs[chosen.subgraphIndex]
    first, second = (_Run(content, signature, chosen.subgraphIndex, batch) for batch in _BATCHES)
    constants = {
        number: first.value(number)
        for number, tensor in enumerate(graph.tensors)
        if model.buffers[tensor.buffer].data is not None
    }
    repeated: dict[int, Array] = {}
    computed: set[int] = set()
    operators = []
    for operator in map(_read_operator(model, graph), graph.operators):
        known = constants.keys() | repeated.keys() | computed
        if operator.kind != "SHAPE" and not known.issuperset(one for one in operator.inputs if one >= 0):
            operators.append(operator)
            continue
        for output in operator.outputs:
            values = first.value(output), second.value(output)
            if np.array_equal(*values, equal_nan=values[0].dtype.kind == "f"):
                constants[output] = values[0]
            elif (one := _one_example(*values)) is not None:
                repeated[output] = one
            else:
                computed.add(output)
    return Network(
        operators,
        names_of(chosen.inputs),
        names_of(chosen.outputs),
        {number: _shape(shape, second.shapes[number]) for number, shape in first.shapes.items()},
        first.types,
        constants,
        repeated,
        frozenset(computed),
    )


def _read_operator(model: Any, graph: Any) -> Any:
    def read_operator(operator: Any) -> Operator:
        outputs = tuple(map(int, operator.outputs))
        name = graph.tensors[outputs[0]].name if outputs else b""
        return Operator(
            flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) or "CUSTOM",
            (name or b"").decode(),
            tuple(map(int, operator.inputs)),
            outputs,
            operator.builtinOptions,
        )

    return read_operator


class _Run:
    """The tensors of a graph after a run with zeros, which are valid indices, for a batch size."""

    def __init__(self, content: bytes, signature: str, graph: int, batch: int) -> None:
        self._graph = graph
        self._interpreter = Interpreter(
            model_content=content,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
        run = self._interpreter.get_signature_runner(signature)
        inputs = {
            name: np.zeros((batch, *map(int, one["shape"][1:])), one["dtype"])
            for name, one in run.get_input_details().items()
        }
        try:
            run(**inputs)
        except RuntimeError as error:
            raise NotExportableError(f"LiteRT cannot run it for a batch of {batch} ({error})") from error
        tensors = {int(one["index"]): one for one in self._interpreter.get_tensor_details(graph)}
        self.shapes = {number: tuple(map(int, one["shape"])) for number, one in tensors.items()}
        self.types = {number: np.dtype(one["dtype"]).name for number, one in tensors.items()}

    def value(self, number: int) -> Array:
        return np.asarray(self._interpreter.get_tensor(number, self._graph))


def _shape(first: Sequence[int], second: Sequence[int]) -> Shape:
    return tuple(_size(*sizes) for sizes in zip(first, second, strict=True))


def _size(first: int, second: int) -> Size:
    if first == second:
        return first
    times, rest = divmod(first, _BATCHES[0])
    if rest or times * _BATCHES[1] != second:
        raise NotExportableError(
            f"a size is {first} for a batch of {_BATCHES[0]} and {second} for one of {_BATCHES[1]}"
        )
    return BatchSize(times)


def _one_example(first: Array, second: Array) -> Array | None:
    """Return the part of a value that is repeated for each example; None if it is not."""
    grows = [
        number
        for number, sizes in enumerate(zip(first.shape, second.shape, strict=True))
        if sizes[0] != sizes[1]
    ]
    part = first[tuple(slice(1) if axis in grows else slice(None) for axis in range(first.ndim))]
    repeats = bool(grows) and all(
        np.array_equal(np.broadcast_to(part, one.shape), one) for one in (first, second)
    )
    return part if repeats else None
