"""Errors of a quantized network's operators, compared with the same network in float32."""

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Final, TypeAlias

from mistify_server.worker.packaging.tflite.flatbuffer import Operator, SignatureGraph, graph_of, operators
from mistify_server.worker.packaging.tflite.isolation import in_litert
from mistify_server.worker.packaging.tflite.runner import SIGNATURE, Arrays
from mistify_server.worker.packaging.tflite.tensor_errors import NetworkGraphAt, TensorErrors, tensor_errors

#: Time after which no further examples are run, in seconds.
_MAX_SECONDS: Final = 5.0

#: Operators that change the type of a tensor, which the two networks have at different places.
_BETWEEN_TYPES: Final = frozenset({"QUANTIZE", "DEQUANTIZE"})

#: An operator's name, and the sizes of its outputs.
_Kind: TypeAlias = tuple[str, tuple[tuple[int, ...], ...]]


def layer_errors(network: bytes, float32: bytes, inputs: Arrays, signature: str = SIGNATURE) -> TensorErrors:
    """Return the relative error of each operator's output, accumulated since the input.

    Examples are run for some seconds, at least one of them.

    Args:
        network: A `.tflite`.
        float32: The same network in float32.
        inputs: Input -> some examples [n, ...].
        signature: The signature of `network` that runs it: that of a branch, in a package with branches.

    Raises:
        LiteRtError: LiteRT cannot run one of them.
    """
    ours, theirs = graph_of(network, signature), graph_of(float32, SIGNATURE)
    pairs = counterparts(
        list(operators(network, ours.number)), ours, list(operators(float32, theirs.number)), theirs
    )
    return in_litert(
        tensor_errors,
        NetworkGraphAt(network, signature, ours.number),
        NetworkGraphAt(float32, SIGNATURE, theirs.number),
        list(pairs.items()),
        dict(inputs),
        _MAX_SECONDS,
    )


def counterparts(
    quantized: Iterable[Operator],
    of_quantized: SignatureGraph,
    float32: Iterable[Operator],
    of_float32: SignatureGraph,
) -> Mapping[int, int]:
    """Return the tensors of a quantized network, and the tensors of the float32 network that they represent.

    Operators correspond in order, as far as their names and the sizes of their outputs are equal. Integers
    correspond to the floats from which they were made.
    """
    quantized, float32 = list(quantized), list(float32)
    named = {name: index for index, name in of_float32.inputs.items()}
    pairs = {index: named[name] for index, name in of_quantized.inputs.items()}
    ours, theirs = ([each for each in one if each.name not in _BETWEEN_TYPES] for one in (quantized, float32))
    matcher = SequenceMatcher(None, list(map(_kind, ours)), list(map(_kind, theirs)), autojunk=False)
    for start, other_start, size in matcher.get_matching_blocks():
        for operator, other in zip(ours[start:][:size], theirs[other_start:][:size], strict=True):
            written = zip(operator.outputs, other.outputs, strict=True)
            pairs.update((tensor.index, counterpart.index) for tensor, counterpart in written)
    for operator in quantized:
        if operator.name in _BETWEEN_TYPES and operator.inputs[0].index in pairs:
            pairs[operator.outputs[0].index] = pairs[operator.inputs[0].index]
    return pairs


def _kind(operator: Operator) -> _Kind:
    return operator.name, tuple(tensor.shape for tensor in operator.outputs)
