"""The costs of a network, computed from its layers (paper section 4.1, DNN cost budgets).

A network is described by numbers alone, without a model or a framework. The executor that owns the model
fills in `LayerCost`s; server and client compute the same costs from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from mistify.costs.operators import Operation, OperatorKind
from mistify.costs.quantization import Quantization, Storage

__all__ = ["LayerCost", "NetworkCost"]

FLOAT_BYTES = 4

_WEIGHTED = frozenset({OperatorKind.CONVOLUTION, OperatorKind.DEPTHWISE, OperatorKind.DENSE})

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
class LayerCost:
    """One layer in the cost model.

    Attributes:
        multiply_adds: Multiply-adds of one inference at batch 1.
        params: Weights as trained, batch normalisation included.
        stored_params: Weights as packaged, with batch normalisation folded.
        inputs: Tensors read, by index.
        output: Tensor written, by index.
        in_place: Whether the output needs no memory of its own (an activation fused into the layer
            before it, a reshape).
        stored_biases: Number of stored weights in biases and other vectors.
        operations: The operators of the layer in LiteRT.
        operators: Number of operators in the file, if there are more than operations, as for the unrolled
            steps of a recurrent layer.
    """

    name: str
    multiply_adds: int
    params: int
    stored_params: int
    inputs: tuple[int, ...]
    output: int
    in_place: bool = False
    stored_biases: int = 0
    operations: tuple[Operation, ...] = ()
    operators: int = 1

    @property
    def stored_kernel(self) -> int:
        """The stored weights that are not biases."""
        return self.stored_params - self.stored_biases


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
            kernel = layer.stored_kernel
            total += kernel * (FLOAT_BYTES if kernel < storage.least_kernel else storage.weight)
            total += layer.stored_biases * storage.bias
        return total

    @cached_property
    def peak_activations(self) -> int:
        """The maximum number of elements alive at once while the layers run in order."""
        home = self._storage()
        last_use = {home[tensor]: len(self.layers) for tensor in self.outputs}
        for step, layer in enumerate(self.layers):
            for tensor in (*layer.inputs, layer.output):
                last_use[home[tensor]] = max(last_use.get(home[tensor], 0), step)
        alive = {home[tensor] for tensor in self.inputs}
        peak = sum(self.elements[tensor] for tensor in alive)
        for step, layer in enumerate(self.layers):
            alive.add(home[layer.output])
            peak = max(peak, sum(self.elements[tensor] for tensor in alive))
            alive = {tensor for tensor in alive if last_use.get(tensor, -1) > step}
        return peak

    def memory_bytes(self, precision: Quantization = Quantization.NONE) -> int:
        """Return packaged weights plus the peak of live activations, in bytes.

        For integers this is a lower bound, with int8 `inputs`. Float inputs and outputs add to it.
        """
        return self.weight_bytes(precision) + precision.storage.activation * self.peak_activations

    def size_bytes(self, precision: Quantization = Quantization.NONE) -> int:
        """Return the expected size of the packaged file in bytes."""
        storage = precision.storage
        scaled = (layer for layer in self.layers if layer.stored_kernel >= storage.least_kernel)
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

    def _storage(self) -> list[int]:
        """Return, for each tensor, the tensor whose memory it uses: itself, or its input."""
        readers: dict[int, int] = {}
        for layer in self.layers:
            for tensor in set(layer.inputs):
                readers[tensor] = readers.get(tensor, 0) + 1
        home = list(range(len(self.elements)))
        for layer in self.layers:
            source = layer.inputs[0] if layer.inputs else layer.output
            if layer.in_place and readers[source] == 1 and source not in (*self.inputs, *self.outputs):
                home[layer.output] = home[source]
        return home


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
    if operation.kind in _WEIGHTED:
        return storage.weighted
    return storage.plain * (operation.times if operation.kind in _SEPARATE else 1)
