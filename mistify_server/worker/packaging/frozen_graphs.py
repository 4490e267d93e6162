"""Packages of graphs without Keras structure: converted as they are, at the precision that is asked for."""

from functools import partial

import numpy as np
import tensorflow as tf

from executors.data import Dataset, HeldOut
from executors.sources.graph.frozen_graph import FrozenGraph
from executors.training.output_objectives import objectives_for
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.description.description import description_of
from mistify_server.worker.packaging.assemble import Package, assemble
from mistify_server.worker.packaging.conversion.activations import Calibration, calibration
from mistify_server.worker.packaging.conversion.converter import Function, convert_function
from mistify_server.worker.packaging.conversion.representative import Examples, one_by_one
from mistify_server.worker.packaging.conversion.result import Conversion, ConvertedNetworks


def convert_graph(
    graph: FrozenGraph, quantization: QuantizationConfig | None = None, examples: Examples | None = None
) -> bytes:
    """Convert a graph to a `.tflite`.

    Args:
        graph: What is converted.
        quantization: The precision; float32 if not given.
        examples: Training data by input, from which integer packages take the scales of activations.

    Raises:
        MistifyError: INVALID_MODEL, LiteRT lacks an operation.
    """
    types = {spec.name: spec.dtype.as_numpy_dtype for spec in graph.inputs}
    typed = {name: array.astype(types[name]) for name, array in (examples or {}).items()}
    rows = partial(one_by_one, typed) if typed else None
    return convert_function(function_of(graph), quantization or QuantizationConfig(), rows)


def function_of(graph: FrozenGraph) -> Function:
    """Return a graph as what is converted."""
    return Function(graph, graph.inputs, graph.outputs)


def package_graph(graph: FrozenGraph, task: PackageTask, train: Dataset, held_out: HeldOut) -> Package:
    """Convert a graph, compare it with the result, and measure and describe that.

    Args:
        graph: The checkpoint of the task.
        task: What is asked of the package, and what its checkpoint was measured to be.
        train: The data that integer packages take the scales of activations from.
        held_out: The data that the package is compared and measured on.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the package computes something else than the graph; INVALID_MODEL, it
            cannot be converted.
    """
    sample, quantization = Calibration({}), task.settings.quantization
    if quantization.precision is Quantization.INT8:
        sample = calibration([function_of(graph)], train)
    objectives = objectives_for(graph.signature, train)
    conversion = Conversion(
        networks=ConvertedNetworks(convert_graph(graph, quantization, sample.examples)),
        inputs=[spec.name for spec in graph.inputs],
        outputs=graph.outputs,
        originals=[partial(_run, graph)],
        float32=partial(convert_graph, graph),
        accuracy=task.accuracy,
        note=sample.note,
        description=description_of(task.data.settings, graph.signature, objectives, train),
    )
    return assemble(conversion, task, objectives, held_out)


def _run(graph: FrozenGraph, inputs: Examples) -> dict[str, np.ndarray]:
    """Run the graph in TensorFlow on a batch of inputs, and return its outputs by name."""
    forward = tf.function(function_of(graph).__call__, autograph=False)
    tensors = {spec.name: tf.cast(inputs[spec.name], spec.dtype) for spec in graph.inputs}
    return {name: output.numpy() for name, output in forward(**tensors).items()}
