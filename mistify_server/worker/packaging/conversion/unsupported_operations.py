"""Errors about operations that LiteRT lacks, in terms of the layers that need them."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import keras

from executors.structure.reading.reader import read_graph
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify_server.worker.packaging.tflite.layer_names import layer_at

#: An operation that cannot be converted in the converter's message: its type and its name.
_OPERATION: Final = re.compile(r'error: loc\((?:callsite\()*fused\["(\w+):", "([^"@]*)')

#: The line in which the converter lists such operations.
_LISTED: Final = re.compile(r"^(?:TF Select|Custom) ops: (.*)$", re.MULTILINE)

#: Parts of an operation's name without information about the network.
_CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")

_EXPECTED: Final = "layers with operators that LiteRT has"
_FIX: Final = "replace it by other layers, or do this computation in the app that runs the package"


#: More specific advice by the layer's class.
_OWN_FIXES: Final = {
    "Conv1DTranspose": "use dilation_rate=1",
    "Conv2DTranspose": "use dilation_rate=1",
    "Conv3DTranspose": "use dilation_rate=1",
    "Resizing": 'use interpolation="bilinear" or "nearest", and antialias=False',
    "UpSampling2D": 'use interpolation="bilinear" or "nearest"',
}


class _UnsupportedOperation(NamedTuple):
    """A part of a model that needs an operation missing in LiteRT, and advice for avoiding it."""

    value: str
    fix: str = _FIX


def lacking_operators(message: str, model: keras.Model | None) -> MistifyError:
    """Return the error INVALID_MODEL for a network that cannot be converted.

    Args:
        message: The converter's message.
        model: The model, for layer names; None for a graph without layers.
    """
    layers = {} if model is None else _kinds(model)
    operations = [
        _unsupported_operation(operation, place, layers) for operation, place in _OPERATION.findall(message)
    ]
    if not operations:
        listed = _LISTED.search(message)
        first_line = message.strip().splitlines()[0][:200]
        operations = [_UnsupportedOperation(f"the operations {listed[1]}" if listed else first_line)]
    problems = [Problem("model", value, _EXPECTED, fix) for value, fix in dict.fromkeys(operations)]
    return MistifyError(ErrorCode.INVALID_MODEL, "LiteRT cannot run the model", problems)


def _unsupported_operation(operation: str, place: str, layers: Mapping[str, str]) -> _UnsupportedOperation:
    # A Keras operation that is not a layer gives no name to its parts: find it by the operation's type.
    layer = layer_at(place, layers) or next(
        (name for name, kind in layers.items() if kind == operation), None
    )
    if layer is not None:
        kind = layers[layer]
        return _UnsupportedOperation(f"layer {layer!r}, a {kind}", _OWN_FIXES.get(kind, _FIX))
    named = "/".join(part for part in place.split("/") if part not in _CALLS)
    return _UnsupportedOperation(
        f"the operation {operation}" + (f" of {named!r}" if named != operation else "")
    )


def _kinds(model: keras.Model) -> dict[str, str]:
    """Return the classes of a model's layers by name."""
    return {name: type(layer).__name__ for name, layer in read_graph(model).layers.items()}
