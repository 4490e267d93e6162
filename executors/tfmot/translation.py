"""The translation of Keras 3 models to tf_keras, for TensorFlow Model Optimization."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import keras
import tensorflow as tf

from executors.constructors import settings_of
from executors.data import Array
from executors.structure.equivalence import TOLERANCE, difference
from executors.structure.reading.reader import read_graph
from executors.training.evaluation import call
from mistify.errors import ErrorCode, MistifyError, Problem

#: Examples that model and translation are compared on.
_COMPARED_EXAMPLES: Final = 8

#: Options that do not matter to what a built layer computes. Those that Keras 2 lacks are left out as well:
#: the comparison shows where they make a difference.
_LEFT_OUT: Final = ("_initializer", "_regularizer", "_constraint", "dtype", "seed")

#: Options that recurrent layers of Keras 2 take without naming them.
_UNNAMED: Final = frozenset({"zero_output_for_mask"})

#: Options that Keras 2 calls differently.
_RENAMED: Final = {"LeakyReLU": {"negative_slope": "alpha"}}


def translated(model: keras.Model, examples: Mapping[str, Array]) -> Any:
    """Translate a model to tf_keras, and compare both.

    Args:
        model: The Keras 3 model.
        examples: Inputs [n, ...] by name, of which the first ones are compared.

    Returns:
        A tf_keras model whose layers have the names of the graph.

    Raises:
        MistifyError: INVALID_MODEL, a layer cannot be translated, or the translation computes something else.
    """
    import tf_keras  # noqa: PLC0415 - a second Keras, which only TFMOT needs

    graph = read_graph(model)
    try:
        translation = graph.build(_translated_layer, graph.weights, tf_keras)
    except ValueError as error:  # other weights, or calls that Keras 2 does not take
        raise unsuited(f"model {model.name}, which Keras 2 cannot build ({error})") from error
    compared = {name: array[:_COMPARED_EXAMPLES] for name, array in examples.items()}
    expected = call(model, compared, False).values()
    actual = keras.tree.flatten(translation(in_order(translation, compared), training=False))
    if not difference(expected, actual) <= TOLERANCE:
        raise unsuited(f"model {model.name}, whose outputs change in Keras 2")
    return translation


def wrapped(model: Any, wrap: Callable[[Any], Any], known: Callable[[Any], bool]) -> Any:
    """Return a tf_keras model with every layer wrapped that TFMOT knows, sharing the weights of the others.

    Args:
        model: The tf_keras model.
        wrap: Wraps a layer.
        known: Returns whether TFMOT knows a layer.

    Raises:
        MistifyError: INVALID_MODEL, it knows none of the layers.
    """
    import tf_keras  # noqa: PLC0415

    chosen = [layer.name for layer in model.layers if known(layer)]
    if not chosen:
        kinds = ", ".join(sorted({type(layer).__name__ for layer in model.layers}))
        raise unsuited(f"none but layers that it does not know ({kinds})")
    return tf_keras.models.clone_model(
        model, clone_function=lambda layer: wrap(layer) if layer.name in chosen else layer
    )


def in_order(model: Any, arrays: Mapping[str, Any]) -> list[tf.Tensor]:
    """Return inputs by name in the order and the types of a tf_keras model."""
    return [
        tf.cast(arrays[name], tensor.dtype)
        for name, tensor in zip(model.input_names, model.inputs, strict=True)
    ]


def unsuited(reason: str) -> MistifyError:
    """Return the error INVALID_MODEL of a model that TFMOT cannot treat."""
    fix = 'ask for the precision "int8" in place of "int8-qat", and for no "compression"'
    problem = Problem("model", reason, "layers that Keras 2 has as well", fix)
    return MistifyError(
        ErrorCode.INVALID_MODEL, "TensorFlow Model Optimization cannot treat the model", [problem]
    )


def _translated_layer(name: str, layer: keras.layers.Layer) -> Any:
    import tf_keras  # noqa: PLC0415

    kind = type(layer).__name__
    old = getattr(tf_keras.layers, kind, None)
    try:
        if old is None or not type(layer).__module__.startswith("keras."):
            raise TypeError("there is no such layer in Keras 2")
        return old.from_config({**_config(layer, old), "name": name})
    except (TypeError, ValueError) as error:
        cause = str(error).rpartition("Exception encountered: ")[2]
        raise unsuited(f"layer {name!r}, a {kind} ({cause})") from error


def _config(layer: keras.layers.Layer, old: type) -> dict[str, Any]:
    """Return what the class of Keras 2 takes of a layer's config."""
    renamed = _RENAMED.get(type(layer).__name__, {})
    config = {renamed.get(key, key): value for key, value in layer.get_config().items()}
    known = settings_of(old) | _UNNAMED
    return {key: value for key, value in config.items() if key in known and not key.endswith(_LEFT_OUT)}
