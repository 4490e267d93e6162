"""The conversion of networks that are trained to compute with integers."""

from functools import partial
from typing import Any

import keras

from executors.tfmot import quantization_aware
from executors.training.setup import TrainingSetup
from mistify.config.quantization import QuantizationConfig
from mistify_server.worker.packaging.conversion.converter import Function, convert_function


def convert_aware(
    model: keras.Model, quantization: QuantizationConfig, setup: TrainingSetup, steps: int, seed: int
) -> bytes:
    """Train a model to compute as int8 will, and convert that.

    Args:
        model: The checkpoint, which is not changed.
        quantization: The precision of the package.
        setup: The training data, and the teacher's predictions for them.
        steps: Training steps; without any, the file has the operators and the types of one that is trained.
        seed: Of the order of the examples.

    Raises:
        MistifyError: INVALID_MODEL, a layer cannot be translated, or LiteRT lacks an operation.
        FloatingPointError: The loss is no longer finite.
    """
    aware = quantization_aware(model, setup, steps, seed)
    return convert_function(Function.like(model, partial(_call_in_order, aware), aware), quantization)


def _call_in_order(model: Any, *inputs: Any) -> Any:
    return model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)
