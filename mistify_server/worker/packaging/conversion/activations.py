"""Checks that a network's activations are finite for the calibration examples of integer quantization.

The converter crashes if one is not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from executors.data import Dataset
from executors.inspection.errors import invalid
from executors.structure.exporting import NamedFunction
from mistify.wording import counted
from mistify_server.worker.packaging.conversion.representative import Examples, representative
from mistify_server.worker.packaging.rewriting.stable_operations import STABLE
from mistify_server.worker.packaging.tflite.layer_names import layer_at

#: Number of examples per batch.
_BATCH = 16


class ActivationCheck:
    """Runs a function on examples, and checks every float that it computes.

    Args:
        function: The function to be converted.
    """

    def __init__(self, function: NamedFunction) -> None:
        specs = {spec.name: spec for spec in function.inputs}
        traced = tf.function(function.__call__, autograph=False).get_concrete_function(**specs)
        frozen = convert_variables_to_constants_v2(traced, lower_control_flow=False).graph
        self._graph = frozen.as_graph_def()
        # Tensors that layers hold, such as statistics of data, are further inputs, which are constants now.
        arguments = traced.inputs[: len(traced.inputs) - len(traced.captured_inputs)]
        self._feeds = {_argument(tensor): tensor.name for tensor in arguments}
        self._names = list(_floats(frozen))
        self._function = function
        self._finite = tf.function(self._trace, autograph=False, reduce_retracing=True)

    def overflows(self, examples: Examples) -> dict[int, str]:
        """Return the examples with a non-finite number: their index -> the place of the first such number.

        Args:
            examples: Input name -> [n, ...].
        """
        count = len(next(iter(examples.values())))
        suspected = (
            index
            for start in range(0, count, _BATCH)
            if self._overflow(examples, slice(start, start + _BATCH))
            for index in range(start, min(start + _BATCH, count))
        )
        places = ((index, self._overflow(examples, slice(index, index + 1))) for index in suspected)
        return {index: place for index, place in places if place}

    def _overflow(self, examples: Examples, rows: slice) -> str:
        """Return the place of the first non-finite number for some examples; empty if all are finite."""
        inputs = {
            spec.name: tf.constant(examples[spec.name][rows].astype(spec.dtype.as_numpy_dtype))
            for spec in self._function.inputs
        }
        finite = self._finite(**inputs).numpy()
        return "" if finite.all() else self._place(self._names[int(finite.argmin())])

    def _trace(self, **inputs: Any) -> Any:
        feeds = {self._feeds[name]: tensor for name, tensor in inputs.items()}
        tensors = tf.graph_util.import_graph_def(self._graph, feeds, self._names, name="")
        return tf.stack([tf.reduce_all(tf.math.is_finite(tensor)) for tensor in tensors])

    def _place(self, tensor: str) -> str:
        """Return the layer that computes a tensor, or else the input or operation."""
        inputs = {feed: name for name, feed in self._feeds.items()}
        if tensor in inputs:
            return f"input {inputs[tensor]}"
        layer = layer_at(tensor, self._function.layers)
        return f"layer {layer}" if layer else f"operation {tensor.partition(':')[0]}"


@dataclass(frozen=True)
class Calibration:
    """Calibration examples for integer quantization.

    Attributes:
        examples: Input -> [n, ...].
        note: Description of the excluded examples with the reason; empty if there are none.
    """

    examples: Examples
    note: str = ""


def calibration(functions: Iterable[NamedFunction], train: Dataset) -> Calibration:
    """Return a sample of the training data, without examples for which a function computes Inf or NaN.

    Args:
        functions: All functions to be converted with these examples; they share their inputs.

    Raises:
        MistifyError: INVALID_MODEL, no example is left.
    """
    sample = representative(train)
    overflows: dict[int, str] = {}
    for function in functions:
        overflows |= ActivationCheck(function).overflows(sample.inputs)
    if not overflows:
        return Calibration(sample.inputs)
    first = min(overflows)
    place = f"{overflows[first]} is not finite for example {sample.row_numbers[first]} of the training data"
    if len(overflows) == len(sample):
        expected = "finite activations, which integer quantization is calibrated with"
        fix = "scale its inputs, or package it in float32"
        raise invalid("the model", f"none: {place}, nor for any other example tried", expected, fix)
    kept = sample.subset(np.setdiff1d(np.arange(len(sample)), list(overflows)))
    others = f", and for {counted(len(overflows) - 1, 'other')}" if len(overflows) > 1 else ""
    count = f"{len(kept)} of {counted(len(sample), 'example')}"
    return Calibration(kept.inputs, f"integers are calibrated with {count}: {place}{others}")


def _argument(tensor: Any) -> str:
    """Return the name of the input that a placeholder represents."""
    return str(tensor.op.get_attr("_user_specified_name").decode())


def _floats(graph: Any) -> Iterator[str]:
    """Yield the names of the float tensors in a graph, except in parts that are packaged in another form."""
    for operation in graph.get_operations():
        if operation.type not in ("Const", *STABLE):
            yield from (tensor.name for tensor in operation.outputs if tensor.dtype == tf.float32)
