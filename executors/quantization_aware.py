"""Quantization-aware training by TensorFlow Model Optimization, which knows Keras 2 alone.

A folded network is translated to tf_keras layer by layer, its layers imitate int8, and it learns to do so
from the training data and the teacher.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from executors.data import Array
from executors.evaluation import call
from executors.objectives import Objective, objectives_of
from executors.structure import fold_batch_norm
from executors.structure.graph import read_graph
from executors.training import Schooling, cosine
from mistify.errors import ErrorCode, MistifyError, Problem

#: Adam's highest rate: a folded network of unscaled inputs has weights of very different sizes.
_LEARNING_RATE: Final = 3e-5

#: Steps at rate zero before the first update, in which Adam learns how large the gradients are.
_PRIMING_STEPS: Final = 10

#: Examples whose activations the first ranges are taken from.
_CALIBRATION_EXAMPLES: Final = 100

#: How much of a range stays at each step of TFMOT's moving averages.
_RANGE_DECAY: Final = 0.999

#: Ranges of activations that change by less than this share are settled.
_SETTLED: Final = 0.01

_COMPARED_EXAMPLES: Final = 8
_TOLERANCE: Final = 1e-4

#: Options of Keras 3 layers that say nothing about what a built layer computes, or that Keras 2 lacks: where
#: they make a difference the comparison tells.
_LEFT_OUT: Final = (
    "_initializer", "_regularizer", "_constraint", "dtype", "quantization_config", "seed", "rms_scaling"
)  # fmt: skip

#: Options that Keras 2 calls differently.
_RENAMED: Final = {"LeakyReLU": {"negative_slope": "alpha"}}


def quantization_aware(model: keras.Model, schooling: Schooling, steps: int, seed: int) -> Any:
    """A tf_keras model that computes what the model computes, as int8 will.

    Layers that TFMOT does not know stay in float32.

    Args:
        model: The checkpoint, which is not changed.
        schooling: The training data, and what the teacher says of them.
        steps: Training steps.
        seed: Where the order of the examples starts from.

    Raises:
        MistifyError: INVALID_MODEL, a layer cannot be translated, the translation computes something else, or
            TFMOT knows none of the layers.
        FloatingPointError: The loss is no longer finite.
    """
    rng = np.random.default_rng(seed)
    few = rng.permutation(len(schooling.train))[:_CALIBRATION_EXAMPLES]
    examples = schooling.train.subset(few).inputs
    compared = {name: array[:_COMPARED_EXAMPLES] for name, array in examples.items()}
    aware = _annotated(translated(model, compared))
    calibrate(aware, examples)
    _train(
        aware, objectives_of(model, schooling.train, schooling.settings.class_weights), schooling, steps, rng
    )
    return aware


def translated(model: keras.Model, examples: Mapping[str, Array]) -> Any:
    """A model as one of tf_keras, with batch norm folded; compared on some examples.

    Raises:
        MistifyError: As `quantization_aware`.
    """
    import tf_keras  # noqa: PLC0415 - a second Keras, for this precision alone

    folded = fold_batch_norm(model)
    graph = read_graph(folded)
    try:
        translation = graph.build(_translated_layer, graph.weights, tf_keras)
    except ValueError as error:  # other weights, or calls that Keras 2 does not take
        raise _unsuited(f"model {model.name}, which Keras 2 cannot build ({error})") from error
    expected = call(folded, examples, False).values()
    found = keras.tree.flatten(translation(_in_order(translation, examples)))
    for wanted, given in zip(map(np.asarray, expected), map(np.asarray, found), strict=True):
        if not np.abs(given - wanted).max() <= _TOLERANCE * max(1.0, np.abs(wanted).max()):
            raise _unsuited(f"model {model.name}, whose outputs change in Keras 2")
    return translation


def calibrate(aware: Any, examples: Mapping[str, Array]) -> None:
    """Set the ranges of all activations to what they are on some examples.

    TFMOT's moving averages start at -6 and 6 and take thousands of steps to get anywhere. A range is right
    after one step in which all those before it are: so take as many as the network is deep, at the most, and
    read off each what the examples have contributed to the average.
    """
    ranges = [variable for variable in aware.non_trainable_variables if _is_range(variable.name)]
    given = _in_order(aware, examples)
    forward = tf.function(lambda: aware(given, training=True), autograph=False)
    for _ in ranges:
        before = np.array([float(variable) for variable in ranges])
        forward()
        after = np.array([float(variable) for variable in ranges])
        seen = (after - _RANGE_DECAY * before) / (1 - _RANGE_DECAY)
        for variable, value in zip(ranges, seen, strict=True):
            variable.assign(value)
        if np.allclose(seen, before, rtol=_SETTLED, atol=_SETTLED):
            return


def _in_order(model: Any, arrays: Mapping[str, Any]) -> list[tf.Tensor]:
    """Inputs by name as a tf_keras model takes them, whatever their types."""
    return [
        tf.cast(arrays[name], tensor.dtype)
        for name, tensor in zip(model.input_names, model.inputs, strict=True)
    ]


def _is_range(name: str) -> bool:
    quantity = name.partition(":")[0].rpartition("/")[2]
    return quantity.startswith(("output_", "pre_activation_", "post_activation_"))


def _translated_layer(name: str, layer: keras.layers.Layer) -> Any:
    import tf_keras  # noqa: PLC0415

    kind = type(layer).__name__
    old = getattr(tf_keras.layers, kind, None)
    renamed = _RENAMED.get(kind, {})
    config = {
        renamed.get(key, key): value
        for key, value in layer.get_config().items()
        if not key.endswith(_LEFT_OUT)
    }
    try:
        if old is None or not type(layer).__module__.startswith("keras."):
            raise TypeError("there is no such layer in Keras 2")
        return old.from_config({**config, "name": name})
    except (TypeError, ValueError) as error:
        cause = str(error).rpartition("Exception encountered: ")[2]
        raise _unsuited(f"layer {name!r}, a {kind} ({cause})") from error


def _unsuited(given: str) -> MistifyError:
    problem = Problem("model", given, "layers that Keras 2 has as well", 'ask for the precision "int8"')
    return MistifyError(ErrorCode.INVALID_MODEL, "the model cannot be trained quantization-aware", [problem])


def _annotated(model: Any) -> Any:
    """The model with every layer that TFMOT knows imitating int8."""
    import tensorflow_model_optimization as tfmot  # noqa: PLC0415
    import tf_keras  # noqa: PLC0415
    from tensorflow_model_optimization.python.core.quantization.keras.default_8bit import (  # noqa: PLC0415
        default_8bit_quantize_registry,
    )

    registry = default_8bit_quantize_registry.Default8BitQuantizeRegistry()
    annotate = tfmot.quantization.keras.quantize_annotate_layer
    known = [layer.name for layer in model.layers if registry.supports(layer)]
    if not known:
        kinds = ", ".join(sorted({type(layer).__name__ for layer in model.layers}))
        raise _unsuited(f"none but layers that it does not know ({kinds})")
    annotated = tf_keras.models.clone_model(
        model, clone_function=lambda layer: annotate(layer) if layer.name in known else layer
    )
    return tfmot.quantization.keras.quantize_apply(annotated)


def _train(
    aware: Any,
    objectives: Mapping[str, Objective],
    schooling: Schooling,
    steps: int,
    rng: np.random.Generator,
) -> None:
    """What the outputs learn from the targets and from the teacher, mixed."""
    import tf_keras  # noqa: PLC0415

    optimizer = tf_keras.optimizers.Adam(_LEARNING_RATE)
    variables = aware.trainable_variables
    share, heat = schooling.distillation, schooling.temperature

    def step(batch: Mapping[str, Mapping[str, tf.Tensor]], rate: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(aware(_in_order(aware, batch["inputs"]), training=True))
            loss = tf.add_n(
                [
                    objective.taught(output, batch["targets"][name], batch["teacher"].get(name), share, heat)
                    for (name, objective), output in zip(objectives.items(), outputs, strict=True)
                ]
            )
        optimizer.learning_rate.assign(rate)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    _run(tf.function(step, autograph=False), schooling, steps, rng)


def _run(step: Callable[..., tf.Tensor], schooling: Schooling, steps: int, rng: np.random.Generator) -> None:
    for rate in np.concatenate([np.zeros(_PRIMING_STEPS), _LEARNING_RATE * cosine(steps)]):
        rows = rng.integers(len(schooling.train), size=schooling.batch_size)
        some = schooling.train.subset(rows)
        taught = {name: array[rows] for name, array in (schooling.teacher or {}).items()}
        batch = {"inputs": dict(some.inputs), "targets": dict(some.targets), "teacher": taught}
        loss = step(keras.tree.map_structure(tf.constant, batch), tf.constant(rate, tf.float32))
        if not np.isfinite(float(loss)):
            raise FloatingPointError(f"the loss of quantization-aware training became {float(loss)}")
