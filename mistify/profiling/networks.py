"""Small LiteRT networks of given operators, with random weights; half of the values after a ReLU are zero.

Mainly sizes matter. But if floats are emulated in software, or kernels skip zeros, the latency depends on the
share of zeros.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isqrt, prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.costs.operators import Operation, OperatorKind

Shape = tuple[int, ...]

_VERSION: Final = 3
_SCALE: Final = 0.05
_WEIGHT_SCALE: Final = 0.01
_MOST_WEIGHT: Final = 127
_RELU: Final = schema.ActivationFunctionType.RELU
#: Weights, repeated: on a small device, drawing millions would take longer than running them.
_DRAWN: Final = np.random.default_rng(0).uniform(-1.0, 1.0, 4093)
#: Scale and zero point that LiteRT requires for values between 0 and 1.
_SHARE: Final = (1 / 256, -128)


def network_of(operations: Iterable[Operation], *, integer: bool) -> bytes:
    """Return a `.tflite` file with a chain of operators, each of which reads the previous one's output.

    Args:
        operations: Operators whose sizes fit each other.
        integer: Whether the network is int8 rather than float32.

    Raises:
        ValueError: An operator's input size differs from the previous one's output size.
    """
    writer = _Writer(integer)
    tensor: int | None = None
    for operation in operations:
        shape = _input_shape(operation)
        if tensor is None:
            tensor = writer.input(shape, float32=operation.kind is OperatorKind.QUANTIZE)
            if operation.kind is not OperatorKind.PRODUCT:
                writer.free_batch(tensor)
        if prod(writer.shapes[tensor]) != prod(shape):
            raise ValueError(
                f"{operation} reads {shape}; expected {writer.shapes[tensor]}, as written before"
            )
        tensor = _WRITERS[operation.kind](writer, operation, tensor)
    return writer.network(tensor)


def _sides(positions: int) -> tuple[int, int]:
    """Return height and width: a square if possible, otherwise a row."""
    side = isqrt(positions)
    return (side, side) if side * side == positions else (1, positions)


def _input_shape(operation: Operation) -> Shape:
    if operation.kind is OperatorKind.PRODUCT:
        return (operation.times, operation.positions, operation.c_in)
    if operation.kind is OperatorKind.DENSE and operation.positions == 1:
        return (1, operation.c_in)
    if operation.kind is OperatorKind.RESHAPE:
        return (1, operation.positions, operation.c_in)
    (height, width), (down, right) = _sides(operation.positions), _strides(operation)
    return (1, height * down, width * right, operation.c_in)


def _output_shape(operation: Operation) -> Shape:
    return (1, *_sides(operation.positions), operation.c_out)


def _strides(operation: Operation) -> tuple[int, int]:
    """Return the vertical and the horizontal stride; a row has a horizontal stride only."""
    if _sides(operation.positions)[0] == 1 and operation.positions > 1:
        return (1, operation.stride)
    return _sides(operation.stride)


class _Writer:
    """A LiteRT network to which operators are added."""

    def __init__(self, integer: bool) -> None:
        self._type = schema.TensorType.INT8 if integer else schema.TensorType.FLOAT32
        self._integer = integer
        self._model = schema.ModelT(version=_VERSION, operatorCodes=[], buffers=[schema.BufferT()])
        self._graph = schema.SubGraphT(tensors=[], inputs=[], operators=[])
        self._codes: dict[int, int] = {}
        self.shapes: list[Shape] = []

    def input(self, shape: Shape, *, float32: bool = False) -> int:
        """Add an input of the network and return its number."""
        index = self.tensor(shape, float32=float32)
        self._graph.inputs.append(index)
        return index

    def free_batch(self, tensor: int) -> None:
        """Make the batch dimension of an input free, as in a package."""
        self._graph.tensors[tensor].shapeSignature = [-1, *self.shapes[tensor][1:]]

    def tensor(self, shape: Shape, *, float32: bool = False, like: tuple[float, int] = (_SCALE, 0)) -> int:
        """Add the output tensor of an operator, and return its number.

        Args:
            float32: Use float32 even in an integer network.
            like: Scale and zero point in an integer network.
        """
        if float32 or not self._integer:
            return self._add(shape, schema.TensorType.FLOAT32)
        return self._add(
            shape, self._type, schema.QuantizationParametersT(scale=[like[0]], zeroPoint=[like[1]])
        )

    def weights(self, shape: Shape, axis: int) -> int:
        """Add a kernel with a scale per channel of an axis; activations keep their magnitude after ReLU."""
        values = np.resize(_DRAWN * np.sqrt(6 * shape[axis] / prod(shape)), shape)
        if not self._integer:
            return self._constant(values.astype(np.float32), self._type)
        whole = np.clip(np.round(values / _WEIGHT_SCALE), -_MOST_WEIGHT, _MOST_WEIGHT).astype(np.int8)
        return self._constant(whole, self._type, self._scales(_WEIGHT_SCALE, shape[axis], axis))

    def bias(self, channels: int) -> int:
        """Add a bias of zeros, one per channel."""
        kind = schema.TensorType.INT32 if self._integer else schema.TensorType.FLOAT32
        scales = self._scales(_SCALE * _WEIGHT_SCALE, channels, 0)
        return self._constant(np.zeros(channels, np.int32 if self._integer else np.float32), kind, scales)

    def numbers(self, values: npt.ArrayLike) -> int:
        """Add a constant of sizes or axes."""
        return self._constant(np.asarray(values, np.int32), schema.TensorType.INT32)

    def sizes(self, shape: Shape) -> int:
        """Add a tensor of sizes that an operator writes."""
        return self._add(shape, schema.TensorType.INT32)

    def operator(self, name: str, inputs: Iterable[int], output: int, options: Any = None) -> int:
        """Add an operator, and return its output tensor.

        Args:
            name: The operator's name in LiteRT.
            inputs: Numbers of its input tensors.
            output: Number of its output tensor.
            options: An object of the schema; None for an operator without options.
        """
        code = getattr(schema.BuiltinOperator, name)
        if code not in self._codes:
            self._codes[code] = len(self._codes)
            self._model.operatorCodes.append(
                schema.OperatorCodeT(deprecatedBuiltinCode=min(code, 127), builtinCode=code)
            )
        kind = type(options).__name__.removesuffix("T") if options is not None else "NONE"
        self._graph.operators.append(
            schema.OperatorT(
                opcodeIndex=self._codes[code],
                inputs=list(inputs),
                outputs=[output],
                builtinOptionsType=getattr(schema.BuiltinOptions, kind),
                builtinOptions=options,
            )
        )
        return output

    def network(self, output: int | None) -> bytes:
        """Return the content of the file."""
        self._graph.outputs = [output]
        self._model.subgraphs = [self._graph]
        return bytes(flatbuffer_utils.convert_object_to_bytearray(self._model))

    def _constant(self, values: npt.NDArray[Any], kind: int, scales: Any = None) -> int:
        self._model.buffers.append(schema.BufferT(data=np.frombuffer(values.tobytes(), np.uint8)))
        return self._add(values.shape, kind, scales, len(self._model.buffers) - 1)

    def _scales(self, scale: float, channels: int, axis: int) -> Any:
        if not self._integer:
            return None
        return schema.QuantizationParametersT(
            scale=[scale] * channels, zeroPoint=[0] * channels, quantizedDimension=axis
        )

    def _add(self, shape: Shape, kind: int, quantization: Any = None, buffer: int = 0) -> int:
        self._graph.tensors.append(
            schema.TensorT(
                shape=list(shape),
                type=kind,
                buffer=buffer,
                name=f"t{len(self.shapes)}",
                quantization=quantization,
            )
        )
        self.shapes.append(shape)
        return len(self.shapes) - 1


def _convolution(writer: _Writer, operation: Operation, tensor: int) -> int:
    (rows, columns), (down, right) = _sides(operation.kernel), _strides(operation)
    shape = (operation.c_out, rows, columns, operation.c_in)
    options = schema.Conv2DOptionsT(
        padding=schema.Padding.SAME, strideH=down, strideW=right, fusedActivationFunction=_RELU
    )
    inputs = (tensor, writer.weights(shape, 0), writer.bias(operation.c_out))
    return writer.operator("CONV_2D", inputs, writer.tensor(_output_shape(operation)), options)


def _depthwise(writer: _Writer, operation: Operation, tensor: int) -> int:
    (rows, columns), (down, right) = _sides(operation.kernel), _strides(operation)
    options = schema.DepthwiseConv2DOptionsT(
        padding=schema.Padding.SAME,
        strideH=down,
        strideW=right,
        depthMultiplier=operation.c_out // operation.c_in,
        fusedActivationFunction=_RELU,
    )
    kernel = writer.weights((1, rows, columns, operation.c_out), 3)
    inputs = (tensor, kernel, writer.bias(operation.c_out))
    return writer.operator("DEPTHWISE_CONV_2D", inputs, writer.tensor(_output_shape(operation)), options)


def _dense(writer: _Writer, operation: Operation, tensor: int) -> int:
    kernel = writer.weights((operation.c_out, operation.c_in), 0)
    inputs = (tensor, kernel, writer.bias(operation.c_out))
    output = writer.tensor((*writer.shapes[tensor][:-1], operation.c_out))
    options = schema.FullyConnectedOptionsT(
        keepNumDims=operation.positions > 1, fusedActivationFunction=_RELU
    )
    return writer.operator("FULLY_CONNECTED", inputs, output, options)


def _product(writer: _Writer, operation: Operation, tensor: int) -> int:
    right = writer.input((operation.times, operation.c_in, operation.c_out))
    output = writer.tensor((operation.times, operation.positions, operation.c_out))
    return writer.operator("BATCH_MATMUL", (tensor, right), output, schema.BatchMatMulOptionsT())


def _add(writer: _Writer, operation: Operation, tensor: int) -> int:
    shape = writer.shapes[tensor]
    return writer.operator("ADD", (tensor, writer.input(shape)), writer.tensor(shape), schema.AddOptionsT())


def _pool(writer: _Writer, operation: Operation, tensor: int) -> int:
    (rows, columns), (down, right) = _sides(operation.kernel), _strides(operation)
    options = schema.Pool2DOptionsT(
        padding=schema.Padding.SAME, strideH=down, strideW=right, filterHeight=rows, filterWidth=columns
    )
    name = "MAX_POOL_2D" if operation.kind is OperatorKind.MAX_POOL else "AVERAGE_POOL_2D"
    return writer.operator(name, (tensor,), writer.tensor(_output_shape(operation)), options)


def _mean(writer: _Writer, operation: Operation, tensor: int) -> int:
    options = schema.ReducerOptionsT(keepDims=True)
    output = writer.tensor((1, 1, 1, operation.c_out))
    return writer.operator("MEAN", (tensor, writer.numbers([1, 2])), output, options)


def _softmax(writer: _Writer, operation: Operation, tensor: int) -> int:
    output = writer.tensor(writer.shapes[tensor], like=_SHARE)
    return writer.operator("SOFTMAX", (tensor,), output, schema.SoftmaxOptionsT(beta=1.0))


def _activation(writer: _Writer, operation: Operation, tensor: int) -> int:
    return writer.operator("LOGISTIC", (tensor,), writer.tensor(writer.shapes[tensor], like=_SHARE))


def _copy(writer: _Writer, operation: Operation, tensor: int) -> int:
    """Add a padding by one column."""
    batch, height, width, channels = writer.shapes[tensor]
    edges = writer.numbers([[0, 0], [0, 0], [0, 1], [0, 0]])
    output = writer.tensor((batch, height, width + 1, channels))
    return writer.operator("PAD", (tensor, edges), output, schema.PadOptionsT())


def _reshape(writer: _Writer, operation: Operation, tensor: int) -> int:
    """Reshape a sequence to an image of one row, or back, as around convolutions over time."""
    image = len(writer.shapes[tensor]) == 4
    shape = (1, *(() if image else (1,)), operation.positions, operation.c_out)
    return writer.operator("RESHAPE", (tensor, writer.numbers(shape)), writer.tensor(shape))


def _flatten(writer: _Writer, operation: Operation, tensor: int) -> int:
    """Add a reshape whose shape is computed at run time from the batch size."""
    shape = writer.operator("SHAPE", (tensor,), writer.sizes((4,)), schema.ShapeOptionsT(outType=2))
    slices = (shape, *(writer.numbers([place]) for place in (0, 1, 1)))
    options = schema.StridedSliceOptionsT(shrinkAxisMask=1)
    batch = writer.operator("STRIDED_SLICE", slices, writer.sizes(()), options)
    flat = prod(writer.shapes[tensor])
    packed = writer.operator(
        "PACK", (batch, writer.numbers(flat)), writer.sizes((2,)), schema.PackOptionsT(valuesCount=2)
    )
    return writer.operator("RESHAPE", (tensor, packed), writer.tensor((1, flat)), schema.ReshapeOptionsT())


def _quantize(writer: _Writer, operation: Operation, tensor: int) -> int:
    return writer.operator("QUANTIZE", (tensor,), writer.tensor(writer.shapes[tensor]))


def _dequantize(writer: _Writer, operation: Operation, tensor: int) -> int:
    return writer.operator("DEQUANTIZE", (tensor,), writer.tensor(writer.shapes[tensor], float32=True))


_WRITERS: Final[Mapping[OperatorKind, Callable[[_Writer, Operation, int], int]]] = {
    OperatorKind.CONVOLUTION: _convolution,
    OperatorKind.DEPTHWISE: _depthwise,
    OperatorKind.DENSE: _dense,
    OperatorKind.PRODUCT: _product,
    OperatorKind.ADD: _add,
    OperatorKind.MAX_POOL: _pool,
    OperatorKind.AVERAGE_POOL: _pool,
    OperatorKind.MEAN: _mean,
    OperatorKind.SOFTMAX: _softmax,
    OperatorKind.ACTIVATION: _activation,
    OperatorKind.COPY: _copy,
    OperatorKind.RESHAPE: _reshape,
    OperatorKind.FLATTEN: _flatten,
    OperatorKind.QUANTIZE: _quantize,
    OperatorKind.DEQUANTIZE: _dequantize,
}
