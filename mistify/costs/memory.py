"""The memory of the tensors of a package, forecast from the layers of its network (paper 4.1).

A layer runs as one operator or several, and the tensors between them are alive as well. Operators without
integer kernels compute in float32 even in an integer package; QUANTIZE and DEQUANTIZE copy the tensors on
both sides of them, and those between float inputs or outputs and the integers inside.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

from mistify.costs.layer import FLOAT_BYTES, LayerCost
from mistify.costs.liveness import Step, peak_bytes
from mistify.costs.operators import Operation, OperatorKind, is_float_only, scratch_of

#: Operators that keep the order of elements, and so can leave them where they are.
_KEEP_ORDER = frozenset({OperatorKind.FLATTEN, OperatorKind.RESHAPE})


def float_peak(
    layers: Sequence[LayerCost], elements: Sequence[int], inputs: Collection[int], outputs: Collection[int]
) -> int:
    """Return the peak of live tensors in bytes if all operators compute in float32.

    Args:
        layers: The layers in the order in which they run.
        elements: Elements of each tensor at batch 1, by index.
        inputs: Tensors that the network reads.
        outputs: Tensors that must stay alive until the end.
    """
    plan = _Plan(elements, FLOAT_BYTES)
    for layer in layers:
        plan.run(layer)
    return peak_bytes(plan.steps, plan.sizes, inputs, outputs)


def integer_peak(
    layers: Sequence[LayerCost],
    elements: Sequence[int],
    inputs: Collection[int],
    outputs: Collection[int],
    *,
    integer_inputs: bool,
) -> int:
    """Return the peak of live tensors in bytes if all operators with integer kernels compute in int8.

    Args:
        layers: The layers in the order in which they run.
        elements: Elements of each tensor at batch 1, by index.
        inputs: Tensors that the network reads.
        outputs: Tensors that must stay alive until the end.
        integer_inputs: Whether inputs and outputs of the package are int8 instead of float32.
    """
    plan = _Plan(elements, 1)
    read = tuple(inputs) if integer_inputs else plan.quantized(inputs, layers)
    written: list[int] = []
    for layer in layers:
        plan.run(layer)
        if layer.output in outputs:
            written.append(layer.output if integer_inputs else plan.in_floats(layer.output))
    return peak_bytes(plan.steps, plan.sizes, read, written)


class _Plan:
    """The operators of a package and their tensors, including those inside of layers.

    Attributes:
        steps: The operators in the order in which they run.
        sizes: Bytes of each tensor; those of the network have their index as number.
    """

    def __init__(self, elements: Sequence[int], element_bytes: int) -> None:
        self.steps: list[Step] = []
        self.sizes = {tensor: element_bytes * count for tensor, count in enumerate(elements)}
        self._element_bytes = element_bytes
        self._floats: dict[int, int] = {}

    def quantized(self, inputs: Collection[int], layers: Sequence[LayerCost]) -> tuple[int, ...]:
        """Return float tensors for the network's inputs, and copy to integers those that are read as such."""
        for tensor in inputs:
            self._floats[tensor] = self._tensor(FLOAT_BYTES * self.sizes[tensor])
        for tensor in inputs:
            if any(tensor in layer.inputs and not _is_float(_sequence(layer)[:1]) for layer in layers):
                self.steps.append(Step((self._floats[tensor],), tensor))
        return tuple(self._floats.values())

    def in_floats(self, tensor: int) -> int:
        """Return a copy of integers as floats, or the floats themselves if they were an input."""
        if tensor in self._floats:
            return self._floats[tensor]
        copied = self._tensor(FLOAT_BYTES * self.sizes[tensor])
        self.steps.append(Step((tensor,), copied))
        return copied

    def run(self, layer: LayerCost) -> None:
        """Append the operators of a layer."""
        sequence, inputs = _sequence(layer), layer.inputs
        for operation, following in pairwise(sequence):
            between = self._tensor(self._element_bytes * following.times * following.read)
            self._append(inputs, between, (operation,))
            inputs = (between,)
        last = sequence[-1:] if len(sequence) > 1 else layer.operations
        self._append(inputs, layer.output, last, in_place=layer.in_place and not sequence)

    def _append(
        self, inputs: tuple[int, ...], output: int, made_by: Sequence[Operation], *, in_place: bool = False
    ) -> None:
        """Append an operator, or several whose tensors in between are their scratch."""
        element_bytes, target = self._element_bytes, output
        if element_bytes < FLOAT_BYTES and _is_float(made_by):
            inputs = tuple(self.in_floats(tensor) for tensor in inputs)
            target = self._tensor(FLOAT_BYTES * self.sizes[output])
            element_bytes = FLOAT_BYTES
        scratch = element_bytes * max(map(scratch_of, made_by), default=0)
        self.steps.append(Step(inputs, target, in_place, scratch))
        if target != output:
            self.steps.append(Step((target,), output))

    def _tensor(self, size: int) -> int:
        number = len(self.sizes)
        self.sizes[number] = size
        return number


def _sequence(layer: LayerCost) -> tuple[Operation, ...]:
    """Return the operators of a layer that do more than to keep the order of elements.

    Each reads the result of the one before, unless the layer multiplies tensors or repeats operators for each
    step: then it counts as a single one, whose scratch holds what is between them.
    """
    sequence = tuple(operation for operation in layer.operations if operation.kind not in _KEEP_ORDER)
    branched = layer.operators > 1 or any(each.kind is OperatorKind.PRODUCT for each in sequence)
    return sequence[:1] if branched else sequence


def _is_float(operations: Sequence[Operation]) -> bool:
    return any(map(is_float_only, operations))
