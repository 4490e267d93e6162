"""Conversion of networks to LiteRT at a given precision."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import keras
import tensorflow as tf
from tensorflow.lite.python.convert import mlir_quantize
from tensorflow.lite.python.convert_phase import ConverterError

from executors.sources.contract import Range
from executors.structure.exporting import NamedFunction, folded
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.conversion.fixed_batch import with_fixed_batch
from mistify_server.worker.packaging.conversion.input_scaling import scaling_in_floats
from mistify_server.worker.packaging.conversion.representative import (
    Examples,
    Rows,
    SignatureRows,
    one_by_one,
    typed,
)
from mistify_server.worker.packaging.conversion.source_ranges import with_source_ranges
from mistify_server.worker.packaging.conversion.unsupported_operations import lacking_operators
from mistify_server.worker.packaging.rewriting.saved_models import rewritten
from mistify_server.worker.packaging.tflite.runner import SIGNATURE

_FLOAT32 = QuantizationConfig()


def convert(
    model: keras.Model,
    quantization: QuantizationConfig = _FLOAT32,
    examples: Examples | None = None,
    ranges: Mapping[str, Range] | None = None,
) -> bytes:
    """Convert a model to a `.tflite` with batch norm folded, with signatures for any batch and for batch 1.

    Args:
        model: A checkpoint.
        quantization: The precision of the package. An operator without an integer kernel stays in float32.
        examples: Input -> training data for calibrating integer activations.
        ranges: Layer -> the range of its output's integers, where it is known without calibration.

    Raises:
        MistifyError: INVALID_MODEL, LiteRT lacks an operation.
    """
    with saved(model) as network:
        return network.at(quantization, examples, ranges)


@dataclass(frozen=True)
class SavedNetwork:
    """A model with batch norm folded, saved in a directory for conversion at several precisions."""

    model: keras.Model
    directory: str

    def at(
        self,
        quantization: QuantizationConfig,
        examples: Examples | None = None,
        ranges: Mapping[str, Range] | None = None,
    ) -> bytes:
        """Convert the model to a `.tflite` at a precision; see `convert`."""
        rows = None if examples is None else partial(one_by_one, typed(examples, self.model))
        return with_fixed_batch(convert_saved(self.directory, quantization, rows, self.model, ranges))


@contextmanager
def saved(model: keras.Model) -> Iterator[SavedNetwork]:
    """Fold and trace a model once for all conversions within the block."""
    with tempfile.TemporaryDirectory() as directory:
        save_function(folded(model), directory)
        yield SavedNetwork(model, directory)


def convert_function(
    function: NamedFunction, quantization: QuantizationConfig, rows: Callable[[], Rows] | None = None
) -> bytes:
    """Convert a function to a `.tflite` with signatures for any batch and for batch 1.

    Args:
        quantization: The precision of the network.
        rows: Returns calibration examples; not needed for a function that is already quantized.
    """
    return with_fixed_batch(convert_for_any_batch(function, quantization, rows))


def convert_unedited(
    function: NamedFunction, quantization: QuantizationConfig = _FLOAT32, examples: Examples | None = None
) -> bytes:
    """Convert a function that is not a Keras model, otherwise like `convert`.

    Args:
        quantization: The precision of the package.
        examples: Input -> training data for calibrating integer activations.

    Raises:
        MistifyError: INVALID_MODEL, LiteRT lacks an operation.
    """
    types = {spec.name: spec.dtype.as_numpy_dtype for spec in function.inputs}
    in_types = {name: array.astype(types[name]) for name, array in (examples or {}).items()}
    return convert_function(function, quantization, partial(one_by_one, in_types) if in_types else None)


def convert_for_any_batch(
    function: NamedFunction, quantization: QuantizationConfig, rows: Callable[[], Rows] | None = None
) -> bytes:
    """Convert a function to a `.tflite` with a single signature, otherwise like `convert_function`."""
    with tempfile.TemporaryDirectory() as directory:
        save_function(function, directory)
        return convert_saved(directory, quantization, rows)


def convert_saved(
    directory: str,
    quantization: QuantizationConfig,
    rows: Callable[[], Rows | SignatureRows] | None,
    model: keras.Model | None = None,
    ranges: Mapping[str, Range] | None = None,
) -> bytes:
    """Convert the functions in a directory to a `.tflite` with a signature for each.

    Args:
        directory: A directory written by `save_functions`.
        quantization: The precision of the network.
        rows: Returns calibration examples; for several functions, each with its signature.
        model: The model behind the functions, for layer names in errors; None for graphs without layers.
        ranges: Layer of the model -> the range of its output's integers, in place of the calibrated one.

    Raises:
        MistifyError: INVALID_MODEL, LiteRT lacks an operation.
    """
    with rewritten(directory, integers=quantization.precision.integer):
        converter = tf.lite.TFLiteConverter.from_saved_model(directory)
        _set_precision(converter, quantization, rows)
        try:
            if rows is None or not quantization.precision.integer:
                converted: bytes = converter.convert()
                return converted
            converter._experimental_calibrate_only = True
            calibrated: bytes = converter.convert()
            if model is not None and ranges:
                calibrated = with_source_ranges(calibrated, ranges, [layer.name for layer in model.layers])
            in_floats = scaling_in_floats(calibrated) if converter.inference_input_type == tf.float32 else []
            return _quantized(calibrated, converter, in_floats)
        except ConverterError as error:
            raise lacking_operators(str(error), model) from error


def _quantized(calibrated: bytes, converter: tf.lite.TFLiteConverter, in_floats: Sequence[str]) -> bytes:
    """Return a calibrated network in integers, as the converter makes it by itself.

    Args:
        in_floats: Operators that stay in float32, named by their outputs.
    """
    quantized: bytes = mlir_quantize(
        calibrated,
        input_data_type=converter.inference_input_type,
        output_data_type=converter.inference_output_type,
        denylisted_nodes=list(in_floats),
    )
    return quantized


def save_function(function: NamedFunction, directory: str) -> None:
    """Write a function to a directory as a SavedModel."""
    save_functions({SIGNATURE: function}, directory)


def save_functions(functions: Mapping[str, NamedFunction], directory: str) -> None:
    """Write functions by signature to a directory as a SavedModel."""
    module = tf.Module()
    module.variables_read = [function.variables for function in functions.values()]
    # Do not set them as attributes of the module: they would be traced again, and their constants saved
    # twice.
    signatures = {
        name: tf.function(function.__call__, autograph=False).get_concrete_function(
            **{spec.name: spec for spec in function.inputs}
        )
        for name, function in functions.items()
    }
    tf.saved_model.save(module, directory, signatures=signatures)


def _set_precision(
    converter: tf.lite.TFLiteConverter,
    quantization: QuantizationConfig,
    rows: Callable[[], Rows | SignatureRows] | None,
) -> None:
    precision = quantization.precision
    if precision is Quantization.NONE:
        return
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision is Quantization.FLOAT16:
        converter.target_spec.supported_types = [tf.float16]
    if precision.integer and rows is not None:
        converter.representative_dataset = rows
    if quantization.integer_inputs:
        converter.inference_input_type = converter.inference_output_type = tf.int8
