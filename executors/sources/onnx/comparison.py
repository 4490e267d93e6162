"""Comparison of a translated network with ONNX's reference evaluator."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
from onnx import ModelProto, helper

from executors.inspection.errors import invalid
from executors.sources.errors import first_line
from executors.sources.onnx.batch import Array
from executors.sources.onnx.evaluator import evaluator
from executors.sources.onnx.inputs import Input
from executors.sources.onnx.reader import Translation
from executors.sources.onnx.values import Value
from executors.structure.equivalence import TOLERANCE, difference
from mistify.errors import MistifyError

#: Integer inputs are below this number, as bytes are, so that they differ enough for norms to be computed.
_WHOLE_NUMBERS: Final = 256

#: Limit on integer inputs for the rows of tables with fewer rows, which have at least these.
_ANY_TABLE: Final = 2


def check_equal(path: Path, proto: ModelProto, translation: Translation) -> None:
    """Refuse a translation whose outputs for random inputs differ from the file's.

    Raises:
        MistifyError: INVALID_MODEL, naming the first node that differs; or the reference evaluator cannot run
            the file.
    """
    feed, expected = _computed_examples(path, proto, translation)
    apart = _apart(translation, translation.outputs, feed, expected)
    if all(each <= TOLERANCE for each in apart.values()):
        return
    node, most = _first_difference(path, proto, translation, feed), np.max([*apart.values()])
    raise invalid(
        path, f"outputs that differ from ONNX's by {most:.2g} of the largest value, first after {node}",
        "equal outputs", "check the file with onnx.checker.check_model, and report it if it is valid",
    )  # fmt: skip


def _computed_examples(
    path: Path, proto: ModelProto, translation: Translation
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return random inputs for which the outputs are finite, if there are any, and all tensors.

    Large integers may be no rows of a table, and a logarithm of negative numbers is none.

    Raises:
        MistifyError: INVALID_MODEL if the reference cannot run the graph.
    """
    refusal, computed = None, []
    for below, least in product((_WHOLE_NUMBERS, _ANY_TABLE), (-1.0, 0.0)):
        feed = _examples(translation, below, least)
        try:
            expected = _reference(path, proto, feed)
        except MistifyError as error:
            refusal = refusal or error
            continue
        computed.append((feed, expected))
        if all(np.all(np.isfinite(_numbers(expected[name]))) for name in translation.outputs):
            return computed[-1]
    if not computed and refusal is not None:
        raise refusal
    return computed[0]


def _examples(translation: Translation, below: int, least: float) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    examples = {each.name: _example(rng, each, below, least) for each in translation.inputs}
    return {**translation.constants, **examples}


def _example(rng: np.random.Generator, each: Input, below: int, least: float) -> Array:
    """Return random values, in ONNX's order of axes: from `least` to 1, or integers below `below`."""
    shape = each.value.sizes(each.batch or 2)
    dtype = helper.tensor_dtype_to_np_dtype(each.kind)
    if dtype.kind in "iu":
        return rng.integers(below == _WHOLE_NUMBERS, below, shape).astype(dtype)  # 0 is no divisor
    return rng.uniform(least, 1, shape).astype(dtype)


def _reference(path: Path, proto: ModelProto, feed: Mapping[str, Array]) -> dict[str, Any]:
    """Return all tensors of the graph."""
    try:
        tensors: dict[str, Any] = evaluator(proto).run(None, dict(feed), intermediate=True)
        return tensors
    except Exception as error:
        raise invalid(
            path,
            f"a graph that ONNX's reference evaluator cannot run ({first_line(error)})",
            "a valid graph",
            "export it again",
        ) from error


def _apart(
    translation: Translation,
    values: Mapping[str, Value],
    feed: Mapping[str, Array],
    expected: Mapping[str, Any],
) -> dict[str, float]:
    """Return the difference of each value from the reference; infinity for other shapes."""
    inputs = [feed[each.name].transpose(each.value.axes) for each in translation.inputs]
    model = keras.Model(translation.model.inputs, [value.tensor for value in values.values()])
    made = keras.tree.flatten(model(inputs, training=False))
    result = {}
    for (name, value), output in zip(values.items(), made, strict=True):
        array = _numbers(output).transpose(np.argsort(value.axes))
        same = array.shape == np.shape(expected[name])
        result[name] = difference([_numbers(expected[name])], [array]) if same else float("inf")
    return result


def _numbers(tensor: Any) -> Array:
    """Return a tensor as numbers, 0 and 1 if it has truth values."""
    array = np.asarray(tensor)
    return array.astype(np.int32) if array.dtype == bool else array


def _first_difference(
    path: Path, proto: ModelProto, translation: Translation, feed: Mapping[str, Array]
) -> str:
    expected = _reference(path, proto, feed)
    known = {
        name: value for name, value in translation.values.items() if value.order is None and name in expected
    }
    apart = _apart(translation, known, feed, expected)
    for node in proto.graph.node:
        for name in node.output:
            if not apart.get(name, 0.0) <= TOLERANCE:
                return f"node {node.op_type} {node.name}".strip()
    return "the last node"
