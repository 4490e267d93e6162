"""Operators that a network runs in LiteRT, and their sizes (paper 4.1)."""

from dataclasses import dataclass, fields
from enum import StrEnum


class OperatorKind(StrEnum):
    """A kind of operator; operators of about the same latency are one kind.

    `dense` is a product with weights, `product` a product of two tensors, `add` any elementwise sum or
    product of two tensors, `activation` an elementwise function that is not fused into the preceding
    operator. `copy` moves elements (padding, concatenation, transposition); `reshape` keeps their order, and
    so does `flatten`, for which LiteRT has to determine the batch size at run time.
    """

    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"
    DENSE = "dense"
    PRODUCT = "product"
    ADD = "add"
    MAX_POOL = "max-pool"
    AVERAGE_POOL = "average-pool"
    MEAN = "mean"
    SOFTMAX = "softmax"
    ACTIVATION = "activation"
    COPY = "copy"
    RESHAPE = "reshape"
    FLATTEN = "flatten"
    QUANTIZE = "quantize"
    DEQUANTIZE = "dequantize"


#: Operators with a kernel.
WEIGHTED = frozenset({OperatorKind.CONVOLUTION, OperatorKind.DEPTHWISE, OperatorKind.DENSE})


@dataclass(frozen=True)
class Operation:
    """An operator of a network at batch 1, with batch norm folded into it and activations fused.

    Attributes:
        positions: Output positions (height x width, or steps).
        c_in: Input channels.
        c_out: Output channels.
        kernel: Kernel positions (height x width, or steps).
        stride: Input positions per output position; all of them for a mean.
        times: Number of runs, such as once for each group of a grouped convolution.
    """

    kind: OperatorKind
    positions: int
    c_in: int
    c_out: int
    kernel: int = 1
    stride: int = 1
    times: int = 1

    @property
    def read(self) -> int:
        """Elements of the input."""
        return self.positions * self.stride * self.c_in

    @property
    def written(self) -> int:
        """Elements of the output."""
        return self.positions * self.c_out

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of all its runs, `C_comp` (4.1)."""
        return self.times * self.positions * self._products

    @property
    def bytes_moved(self) -> int:
        """`C_mem` (4.1) of all its runs in float32: weights and written elements."""
        weights = 0 if self.kind is OperatorKind.PRODUCT else self._products
        return 4 * self.times * (weights + self.written)

    @property
    def weights(self) -> int:
        """Kernel elements that every output channel sums over; 0 if there is no kernel."""
        return self._products if self.kind in (OperatorKind.CONVOLUTION, OperatorKind.DENSE) else 0

    @property
    def _products(self) -> int:
        """Multiply-adds at one position: one per weight, unless both tensors are computed."""
        match self.kind:
            case OperatorKind.CONVOLUTION | OperatorKind.DENSE | OperatorKind.PRODUCT:
                return self.kernel * self.c_in * self.c_out
            case OperatorKind.DEPTHWISE:
                return self.kernel * self.c_out
            case _:
                return 0


@dataclass(frozen=True)
class LayerOperation(Operation):
    """An operation of a layer, whose memory in LiteRT does not follow from its sizes alone.

    Attributes:
        scratch: Elements alive while it runs, besides its input and output, as between several operators.
        float_only: Whether LiteRT computes it in float32 at every precision.
    """

    scratch: int = 0
    float_only: bool = False


def with_memory(operation: Operation, scratch: int = 0, *, float_only: bool = False) -> Operation:
    """Return an operation with its memory in LiteRT.

    Args:
        operation: Its sizes.
        scratch: Elements alive while it runs, besides its input and output.
        float_only: Whether LiteRT computes it in float32 at every precision.
    """
    if not scratch and not float_only:
        return operation
    sizes = {each.name: getattr(operation, each.name) for each in fields(Operation)}
    return LayerOperation(**sizes, scratch=scratch, float_only=float_only)


def scratch_of(operation: Operation) -> int:
    """Return the elements alive while an operation runs, besides its input and output."""
    return operation.scratch if isinstance(operation, LayerOperation) else 0


def is_float_only(operation: Operation) -> bool:
    """Check whether LiteRT computes an operation in float32 at every precision."""
    return isinstance(operation, LayerOperation) and operation.float_only


def elementwise(kind: OperatorKind, positions: int, channels: int, times: int = 1) -> Operation:
    """Return an operator that writes one element for each that it reads."""
    return Operation(kind, positions, channels, channels, times=times)
