"""Packaging of sources that cannot be edited: conversion at the requested precision."""

from functools import partial

import numpy as np
import tensorflow as tf

from executors.data import Dataset, HeldOut
from executors.outputs.objectives import objectives_for
from executors.sources.contract import SourceModel
from executors.structure.exporting import NamedFunction
from mistify.costs.quantization import Quantization
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.description.description import description_of
from mistify_server.worker.packaging.assemble import PackageFiles, assemble
from mistify_server.worker.packaging.conversion.activations import Calibration, calibration
from mistify_server.worker.packaging.conversion.converter import convert_unedited
from mistify_server.worker.packaging.conversion.representative import Examples
from mistify_server.worker.packaging.conversion.result import Conversion, ConvertedNetworks


def package_unchanged(
    source: SourceModel, task: PackageTask, train: Dataset, held_out: HeldOut
) -> PackageFiles:
    """Convert a source, compare both, and measure and describe the result.

    Args:
        source: The checkpoint of the task.
        task: The package task, with the costs and accuracy of the checkpoint.
        train: Training data for calibrating integer activations.
        held_out: The held-out data for comparison and measurement.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the package's outputs differ from the source's; INVALID_MODEL, the
            source cannot be converted.
    """
    sample, quantization, function = Calibration({}), task.spec.quantization, source.export()
    if quantization.precision is Quantization.INT8:
        sample = calibration([function], train)
    objectives = objectives_for(source.signature, train)
    conversion = Conversion(
        networks=ConvertedNetworks(convert_unedited(function, quantization, sample.examples)),
        inputs=[spec.name for spec in function.inputs],
        outputs=function.outputs,
        originals=[partial(_run, function)],
        float32=partial(convert_unedited, function),
        accuracy=task.accuracy,
        note=sample.note,
        description=description_of(task.recipe.data.settings, source.signature, objectives, train),
    )
    return assemble(conversion, task, objectives, held_out)


def _run(function: NamedFunction, inputs: Examples) -> dict[str, np.ndarray]:
    """Run a function in TensorFlow on a batch of inputs, and return its outputs by name."""
    forward = tf.function(function.__call__, autograph=False)
    tensors = {spec.name: tf.cast(inputs[spec.name], spec.dtype) for spec in function.inputs}
    return {name: output.numpy() for name, output in forward(**tensors).items()}
