"""The costs of a network, computed from its layers (paper section 4.1, DNN cost budgets).

A network is described by numbers alone, without a model or a framework. The executor that owns the model
fills in the `LayerCost`s; server and client compute the same costs from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from mistify.costs.layer import FLOAT_BYTES, LayerCost
from mistify.costs.memory import float_peak, integer_peak
from mistify.costs.operators import WEIGHTED, Operation, OperatorKind
from mistify.costs.quantization import Quantization, Storage

__all__ = ["LayerCost", "NetworkCost"]

#: A layer may process its elements in several passes, with one operator in the file for each.
_SEPARATE = frozenset({OperatorKind.ADD, OperatorKind.ACTIVATION})


def multiply_adds(c_in: int, c_out: int, s_kernel: int = 1, s_out: int = 1, groups: int = 1) -> int:
    """Return the multiply-adds of a convolution or matrix product, `C_in * C_out * S_kernel * S_out` (4.1).

    Args:
        c_in: Input channels.
        c_out: Output channels.
        s_kernel: Kernel positions (height x width); 1 for a matrix product.
        s_out: Output positions (height x width); 1 for a matrix product on one vector.
        groups: Groups of a grouped convolution; `c_in` for a depthwise one.
    """
    return c_in * c_out * s_kernel * s_out // max(1, groups)


@dataclass(frozen=True)
class NetworkCost:
    """The layers of a network in execution order.

    Attributes:
        elements: Elements of each tensor at batch 1, by tensor index.
        inputs: Tensors that the network reads.
        outputs: Tensors that must stay alive until the end.
    """

    layers: tuple[LayerCost, ...]
    elements: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def flops(self) -> int:
        """Multiply-adds of one inference at batch 1."""
        return sum(layer.multiply_adds for layer in self.layers)

    @property
    def params(self) -> int:
        """Weights as trained; the count that Keras reports."""
        return sum(layer.params for layer in self.layers)

    def weight_bytes(self, precision: Quantization = Quantization.NONE) -> int:
        """Return the bytes of the packaged weights."""
        storage = precision.storage
        total = 0
        for layer in self.layers:
            total += layer.stored_kernel * (
                storage.weight if _has_stored_kernel(layer, storage) else FLOAT_BYTES
            )
            total += layer.stored_biases * storage.bias
        return total

    def activation_bytes(
        self, precision: Quantization = Quantization.NONE, *, integer_inputs: bool = False
    ) -> int:
        """Return the peak size of the tensors alive at once while the package runs, in bytes.

        Args:
            precision: The precision of the package.
            integer_inputs: Whether inputs and outputs of an integer package are int8 instead of float32.
        """
        if not precision.integer:
            return self._float_peak
        return self._integer_peak_of_integers if integer_inputs else self._integer_peak

    def memory_bytes(
        self, precision: Quantization = Quantization.NONE, *, integer_inputs: bool = False
    ) -> int:
        """Return packaged weights plus the peak of live activations, in bytes.

        Args:
            precision: The precision of the package.
            integer_inputs: Whether inputs and outputs of an integer package are int8 instead of float32.
        """
        return self.weight_bytes(precision) + self.activation_bytes(precision, integer_inputs=integer_inputs)

    def size_bytes(self, precision: Quantization = Quantization.NONE) -> int:
        """Return the expected size of the packaged file in bytes."""
        storage = precision.storage
        scaled = (layer for layer in self.layers if _has_stored_kernel(layer, storage))
        channels = storage.channel * sum(layer.stored_biases for layer in scaled)
        operators = sum(_operator_bytes(layer, storage) for layer in self.layers)
        return self.weight_bytes(precision) + storage.frame + channels + operators

    @property
    def bytes_moved(self) -> int:
        """`C_mem` (4.1) in float32: the layers' weights, as in the paper, and the activations they write."""
        return FLOAT_BYTES * sum(
            layer.stored_params + (0 if layer.in_place else self.elements[layer.output])
            for layer in self.layers
        )

    @property
    def operations(self) -> Iterator[Operation]:
        """The operators of the network in LiteRT."""
        return chain.from_iterable(layer.operations for layer in self.layers)

    @cached_property
    def _float_peak(self) -> int:
        return float_peak(self.layers, self.elements, self.inputs, self.outputs)

    @cached_property
    def _integer_peak(self) -> int:
        return integer_peak(self.layers, self.elements, self.inputs, self.outputs, integer_inputs=False)

    @cached_property
    def _integer_peak_of_integers(self) -> int:
        return integer_peak(self.layers, self.elements, self.inputs, self.outputs, integer_inputs=True)


def _has_stored_kernel(layer: LayerCost, storage: Storage) -> bool:
    """Check whether the kernel of a layer is stored at the precision of the package, not in float32."""
    if storage.weight == 1 and layer.is_float_only:
        return False
    return layer.stored_kernel >= storage.least_kernel


def _operator_bytes(layer: LayerCost, storage: Storage) -> int:
    """Return the bytes of a layer's operators, without weights."""
    if layer.operators == 1 and layer.operations:
        return sum(_operation_bytes(operation, storage) for operation in layer.operations)
    if layer.in_place:
        return 0
    first, others = (storage.weighted, storage.repeated) if layer.stored_params else (storage.plain,) * 2
    return first + others * (layer.operators - 1)


def _operation_bytes(operation: Operation, storage: Storage) -> int:
    if operation.kind is OperatorKind.FLATTEN:
        return storage.flatten
    if operation.kind in WEIGHTED:
        return storage.weighted
    return storage.plain * (operation.times if operation.kind in _SEPARATE else 1)
