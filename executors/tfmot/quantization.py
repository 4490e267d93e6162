"""Quantization-aware training: layers imitate int8 while they are trained."""

from collections.abc import Mapping
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf
from typing_extensions import override

from executors.data import Array
from executors.structure import fold_batch_norm
from executors.tfmot.training import TfmotTraining, train
from executors.tfmot.translation import in_order, translated, wrapped
from executors.training.setup import TrainingSetup

#: Adam's highest rate: a folded network of unscaled inputs has weights of very different sizes.
_LEARNING_RATE: Final = 3e-5

#: Examples whose activations the first ranges are taken from.
_CALIBRATION_EXAMPLES: Final = 100

#: The share of a range that stays at each step of TFMOT's moving averages.
_RANGE_DECAY: Final = 0.999

#: Ranges of activations that change by less than this share are settled.
_SETTLED: Final = 0.01

#: Activations inside layers that TFMOT knows; the last is its own, of layers whose ReLU follows them.
_ACTIVATIONS: Final = frozenset(
    {"gelu", "linear", "relu", "sigmoid", "softmax", "swish", "tanh", "NoOpActivation"}
)


def quantization_aware(model: keras.Model, setup: TrainingSetup, steps: int, seed: int) -> Any:
    """Return a tf_keras model that is trained to compute what the model computes, as int8 will.

    Layers that TFMOT does not know, or whose activation it does not know, stay in float32.

    Args:
        model: The checkpoint, which is not changed.
        setup: The training data, and the teacher's predictions for them.
        steps: Training steps.
        seed: Of the order of the examples.

    Raises:
        MistifyError: INVALID_MODEL, a layer cannot be translated, the translation computes something else, or
            TFMOT knows none of the layers.
        FloatingPointError: The loss is no longer finite.
    """
    few = np.random.default_rng(seed).permutation(len(setup.train))[:_CALIBRATION_EXAMPLES]
    examples = setup.train.subset(few).inputs
    aware = _imitating(translated(fold_batch_norm(model), examples))
    calibrate(aware, examples)
    train(aware, TfmotTraining.of(model, setup, steps, seed), _LEARNING_RATE)
    return aware


def calibrate(aware: Any, examples: Mapping[str, Array]) -> None:
    """Set the ranges of all activations to those of some examples.

    TFMOT's moving averages start at -6 and 6 and need thousands of steps to move far. A range is right after
    one step in which all ranges before it are right. So as many steps are taken as the network is deep, at
    the most, and after each the range of the examples is computed from the change of the average.

    Args:
        aware: The tf_keras model, whose ranges are set.
        examples: Inputs [n, ...] by name.
    """
    ranges = [variable for variable in aware.non_trainable_variables if _is_range(variable.name)]
    inputs = in_order(aware, examples)
    forward = tf.function(lambda: aware(inputs, training=True), autograph=False)
    for _ in ranges:
        before = np.array([float(variable) for variable in ranges])
        forward()
        after = np.array([float(variable) for variable in ranges])
        seen = (after - _RANGE_DECAY * before) / (1 - _RANGE_DECAY)
        for variable, value in zip(ranges, seen, strict=True):
            variable.assign(value)
        if np.allclose(seen, before, rtol=_SETTLED, atol=_SETTLED):
            return


def _is_range(name: str) -> bool:
    quantity = name.partition(":")[0].rpartition("/")[2]
    return quantity.startswith(("output_", "pre_activation_", "post_activation_"))


def _imitating(model: Any) -> Any:
    """Return the model with every layer that TFMOT knows imitating int8."""
    from tensorflow_model_optimization.quantization import keras as tfmot  # noqa: PLC0415

    class Registry(tfmot.default_8bit.Default8BitQuantizeRegistry):  # type: ignore[misc]  # untyped
        """Does not claim to know layers that fail for their activation."""

        @override
        def supports(self, layer: Any) -> bool:
            return super().supports(layer) and _knows_activation(layer)

    class Scheme(tfmot.default_8bit.Default8BitQuantizeScheme):  # type: ignore[misc]  # untyped
        """Asks that registry also for layers in front of those that imitate int8."""

        @override
        def get_quantize_registry(self) -> Registry:
            return Registry()

    aware = tfmot.quantize_apply(wrapped(model, tfmot.quantize_annotate_layer, Registry().supports), Scheme())
    for layer in aware.layers:
        # A `Normalization` computes with constants, which are not those of its weights in a copy.
        layer.finalize_state()
    return aware


def _knows_activation(layer: Any) -> bool:
    """Return whether TFMOT knows the activation of a layer, if it has one."""
    activation = getattr(layer, "activation", None)
    name = getattr(activation, "__name__", type(activation).__name__)
    alone = type(layer).__name__ == "Activation"
    return activation is None or name in _ACTIVATIONS or (alone and name == "relu6")
