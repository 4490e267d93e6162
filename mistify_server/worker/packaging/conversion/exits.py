"""The stages of a network with heads, as signatures of one file (CrowdHMTware III-A1)."""

from collections.abc import Callable, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from executors.structure.exporting import NamedFunction, constant
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.exits import FEATURES, stage_signature
from mistify_server.worker.packaging.conversion.converter import convert_saved, save_functions
from mistify_server.worker.packaging.conversion.representative import (
    Examples,
    SignatureRows,
    one_by_one,
    typed,
)


def convert_exits(
    stages: Sequence[keras.Model],
    heads: Sequence[keras.Model],
    output: str,
    quantization: QuantizationConfig,
    examples: Examples | None = None,
) -> bytes:
    """Convert a network in stages to a `.tflite` with a signature for each, for any batch.

    Every stage but the last returns the answer of its head, and the features that the next stage reads.

    Args:
        stages: The networks between the inputs, the heads and the output, with batch norms folded.
        heads: The network of each head, from the features behind its stage.
        output: Name of the network's output.
        quantization: The precision of the package; quantization-aware training is not possible.
        examples: Input of the network -> training data for calibrating integer activations.

    Raises:
        MistifyError: INVALID_MODEL, LiteRT lacks an operation.
    """
    functions = [
        _function(stage, head, output, first=number == 0)
        for number, (stage, head) in enumerate(zip(stages, [*heads, None], strict=True))
    ]
    rows = None if examples is None else partial(_rows, stages, examples)
    with TemporaryDirectory() as directory:
        save_functions({stage_signature(at): each for at, each in enumerate(functions)}, directory)
        return convert_saved(directory, quantization, rows)


def _function(stage: keras.Model, head: keras.Model | None, output: str, *, first: bool) -> NamedFunction:
    """Return the function of a stage and, behind it, of a head; the last stage has none."""
    inputs = [
        tf.TensorSpec(tensor.shape, tensor.dtype, tensor.name if first else FEATURES)
        for tensor in stage.inputs
    ]
    if head is None:
        return NamedFunction(constant(stage), inputs, [output])
    return NamedFunction(_with_head(constant(stage), constant(head)), inputs, [output, FEATURES])


def _with_head(stage: Callable[..., Any], head: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*tensors: Any) -> Any:
        features = stage(*tensors)
        return [head(features), features]

    return forward


def _rows(stages: Sequence[keras.Model], examples: Examples) -> SignatureRows:
    """Yield each example for each stage, computed by the stages before it."""
    for row in one_by_one(typed(examples, stages[0])):
        inputs = dict(row)
        for number, stage in enumerate(stages):
            yield stage_signature(number), inputs
            tensors = list(inputs.values())
            features = stage(tensors if len(tensors) > 1 else tensors[0], training=False)
            inputs = {FEATURES: np.asarray(features)}
