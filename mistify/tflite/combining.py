"""Networks assembled from graphs of others: to split one network, or to stitch several together."""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.tflite.packing import packed

#: Operators that call other graphs of their file, or keep state in it.
_BOUND_TO_FILE: Final = frozenset(
    {
        *("IF", "WHILE", "CALL", "CALL_ONCE", "VAR_HANDLE", "HASHTABLE"),
        *("STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "STABLEHLO_REDUCE", "STABLEHLO_REDUCE_WINDOW"),
        *("STABLEHLO_SORT", "STABLEHLO_SCATTER"),
    }
)

#: The largest code of an operator in the field of older runtimes.
_LARGEST_BYTE: Final = 127

#: Tensors of a graph by their names in a signature.
Names = Mapping[str, int]


def read_network(content: bytes) -> Any:
    """Return a `.tflite` file as mutable objects."""
    return flatbuffer_utils.read_model_from_bytearray(bytearray(content))


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Return the shape of a tensor of such objects; files may leave out those of scalars."""
    return () if tensor.shape is None else tuple(map(int, tensor.shape))


def names_of(tensors: Iterable[Any]) -> dict[str, int]:
    """Return the numbers of the inputs or outputs of a signature by their names."""
    return {tensor.name.decode(): int(tensor.tensorIndex) for tensor in tensors}


class CombinedNetwork:
    """A network assembled from graphs of other networks."""

    def __init__(self) -> None:
        self._model = schema.ModelT(
            version=3, operatorCodes=[], subgraphs=[], buffers=[schema.BufferT()], signatureDefs=[]
        )
        self._buffers: dict[int, int] = {}
        self._quantizations: dict[Any, Any] = {}
        self._codes: dict[tuple[Any, ...], int] = {}

    def parts_of(self, network: Any, graph: Any) -> tuple[list[Any], list[Any]]:
        """Copy the tensors and operators of a graph.

        Args:
            network: Returned by `read_network`. Buffers shared by its graphs stay shared.
            graph: One of the network's graphs.

        Returns:
            Tensors with buffers and operators with codes of this network; operators refer to tensors by their
            numbers in the graph.

        Raises:
            ValueError: One of its operators is bound to its file.
        """
        names = [flatbuffer_utils.opcode_to_name(network, one.opcodeIndex) for one in graph.operators]
        if bound := _BOUND_TO_FILE.intersection(names):
            raise ValueError(f"the operator {min(bound)} cannot be moved to another file")
        tensors = [self._tensor(network, tensor) for tensor in graph.tensors]
        operators = list(map(copy, graph.operators))
        for operator in operators:
            operator.opcodeIndex = self._code(network.operatorCodes[operator.opcodeIndex])
        return tensors, operators

    def add(
        self, signature: str, tensors: list[Any], operators: list[Any], inputs: Names, outputs: Names
    ) -> None:
        """Add a graph, and a signature that runs it.

        Args:
            tensors: Returned by `parts_of`.
            operators: Returned by `parts_of`.
            inputs: Name -> number of the input's tensor.
            outputs: Name -> number of the output's tensor.
        """
        self._model.signatureDefs.append(
            schema.SignatureDefT(
                inputs=_named(inputs),
                outputs=_named(outputs),
                signatureKey=signature.encode(),
                subgraphIndex=len(self._model.subgraphs),
            )
        )
        self._model.subgraphs.append(
            schema.SubGraphT(
                tensors, list(inputs.values()), list(outputs.values()), operators, signature.encode()
            )
        )

    def constant(self, content: npt.NDArray[np.int32]) -> Any:
        """Return a tensor of this network that holds a constant."""
        self._model.buffers.append(schema.BufferT(data=np.frombuffer(content.tobytes(), np.uint8)))
        return schema.TensorT(
            shape=list(content.shape),
            type=schema.TensorType.INT32,
            buffer=len(self._model.buffers) - 1,
            name=b"constant",
            hasRank=True,
        )

    def code(self, builtin: int) -> int:
        """Return the number of a builtin operator among the codes of this network."""
        code = schema.OperatorCodeT(deprecatedBuiltinCode=min(builtin, _LARGEST_BYTE), builtinCode=builtin)
        return self._code(code)

    def packed(self) -> bytes:
        """Return the file; afterwards, nothing can be added."""
        return packed(self._model)

    def _tensor(self, network: Any, tensor: Any) -> Any:
        copied = copy(tensor)
        copied.buffer = self._buffer(network.buffers[tensor.buffer])
        copied.quantization = self._quantization(tensor.quantization)
        return copied

    def _quantization(self, quantization: Any) -> Any:
        """Return scales and zero points: the same object for all tensors with equal ones.

        Graphs of a file share these objects, but parsing the file duplicates them.
        """
        if quantization is None or quantization.details is not None:
            return quantization
        numbers = (quantization.min, quantization.max, quantization.scale, quantization.zeroPoint)
        content = tuple(None if one is None else np.asarray(one).tobytes() for one in numbers)
        return self._quantizations.setdefault((*content, quantization.quantizedDimension), quantization)

    def _buffer(self, buffer: Any) -> int:
        if buffer.data is None:
            return 0
        if id(buffer) not in self._buffers:
            self._buffers[id(buffer)] = len(self._model.buffers)
            self._model.buffers.append(buffer)
        return self._buffers[id(buffer)]

    def _code(self, code: Any) -> int:
        kind = code.builtinCode, code.deprecatedBuiltinCode, code.customCode, code.version
        if kind not in self._codes:
            self._codes[kind] = len(self._model.operatorCodes)
            self._model.operatorCodes.append(code)
        return self._codes[kind]


def _named(tensors: Names) -> list[Any]:
    return [schema.TensorMapT(name=name.encode(), tensorIndex=number) for name, number in tensors.items()]
