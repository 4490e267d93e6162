"""Causes of accuracy losses by precision: weights beyond float16, and tensors with a shared integer scale."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.tflite.flatbuffer import Operator, operators
from mistify_server.worker.packaging.tflite.layer_names import are_repeated, layer_at
from mistify_server.worker.packaging.tflite.runner import Arrays, tensor_ranges

_LARGEST_HALF: Final = float(np.finfo(np.float16).max)

#: The steps of an int8 tensor, and the minimum at which values still count as distinguishable.
_STEPS: Final = 255
_FEW_STEPS: Final = 16


def cause_of_loss(
    precision: Quantization, float32: bytes, inputs: Arrays, layers: Collection[str] = ()
) -> str:
    """Return why a network may lose accuracy at a precision; empty without a known cause.

    Args:
        float32: The same network in float32.
        inputs: Input -> some examples [n, ...].
        layers: Names of the network's layers; without them, tensors are named.
    """
    if precision is Quantization.FLOAT16:
        return _beyond_float16(float32, layers)
    if precision.stored_as is Quantization.INT8:
        return _on_one_scale(float32, inputs, layers)
    return ""


def largest_scale(network: bytes, layers: Collection[str] = ()) -> str:
    """Return the largest step between the integers of a network, and its layer.

    Args:
        network: An integer network.
        layers: Names of the network's layers; without them, tensors are named.
    """
    in_order = list(operators(network))
    scales = {_names(operator): operator.outputs[0].scale for operator in in_order}
    name = max(scales, key=scales.__getitem__)
    return f"a step of {_Names(in_order, layers).of(name)} is {scales[name]:.3g}"


def _beyond_float16(network: bytes, layers: Collection[str]) -> str:
    """Return the layer with weights furthest beyond float16, which the converter clips."""
    in_order = list(operators(network))
    largest = {
        _names(operator): max(
            float(np.abs(tensor.content).max(initial=0))
            for tensor in operator.inputs
            if tensor.content is not None
        )
        for operator in in_order
        if any(tensor.content is not None for tensor in operator.inputs)
    }
    name = max(largest, key=largest.__getitem__, default="")
    if not name or largest[name] <= _LARGEST_HALF:
        return ""
    return (
        f"weights of {_Names(in_order, layers).of(name)} reach {largest[name]:.3g}, and float16 ends at "
        f"{_LARGEST_HALF:,.0f}; float32 and dynamic keep them"
    )


def _names(operator: Operator) -> str:
    """Return the names of an operator's output and weights: a network output has no name of its own."""
    constants = (tensor.name for tensor in operator.inputs if tensor.is_constant)
    return ";".join((operator.outputs[0].name, *constants))


@dataclass(frozen=True)
class _Range:
    """The range of a tensor's values, including zero."""

    name: str
    width: float


def _on_one_scale(network: bytes, inputs: Arrays, layers: Collection[str]) -> str:
    """Return the concatenated tensor with the fewest steps left by another one on their shared scale."""
    in_order = list(operators(network))
    pairs = list(_neighbours(network, in_order, inputs))
    if not pairs:
        return ""
    small, large = min(pairs, key=lambda pair: pair[0].width / pair[1].width)
    steps = _STEPS * small.width / large.width
    if steps >= _FEW_STEPS:
        return ""
    names = _Names(in_order, layers)
    return (
        f"concatenated tensors share one scale: {names.of(large.name)} ranges over {large.width:.3g}, "
        f"which leaves {steps:.2g} of {_STEPS} steps for the {small.width:.3g} of "
        f"{names.of(small.name)}; "
        "normalize both before they are concatenated, or use float16 or float32"
    )


def _neighbours(
    network: bytes, in_order: Iterable[Operator], inputs: Arrays
) -> Iterator[tuple[_Range, _Range]]:
    """Yield the tensors with the smallest and largest range of each concatenation."""
    joins = [operator.inputs for operator in in_order if operator.name == "CONCATENATION"]
    reached = tensor_ranges(network, inputs) if joins else {}
    for joined in joins:
        bounds = {tensor.name: reached[tensor.index] for tensor in joined if tensor.index in reached}
        ranges = [_Range(name, max(high, 0) - min(low, 0)) for name, (low, high) in bounds.items()]
        known = sorted((one for one in ranges if one.width > 0), key=lambda one: one.width)
        if len(known) > 1:
            yield known[0], known[-1]


class _Names:
    """The names of a network's layers, or of its tensors where those do not tell."""

    def __init__(self, in_order: Iterable[Operator], layers: Collection[str]) -> None:
        self._layers = layers
        tensors = (tensor for operator in in_order for tensor in (*operator.inputs, *operator.outputs))
        self._repeated = are_repeated((tensor.name for tensor in tensors), layers)

    def of(self, tensor: str) -> str:
        """Return the layer of a tensor for people."""
        layer = layer_at(tensor, self._layers, repeated=self._repeated)
        return f"layer {layer}" if layer else f"the tensor {tensor}"
