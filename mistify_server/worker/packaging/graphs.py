"""Packages of graphs without Keras structure: converted as they are, at the precision that is asked for."""

import re
from functools import partial

import numpy as np
import tensorflow as tf
from tensorflow.lite.python.convert_phase import ConverterError

from executors.data import Dataset
from executors.inspection.errors import invalid
from executors.sources.graphs import FrozenGraph
from executors.training.objectives import objectives_for
from mistify.config.quantization import QuantizationConfig
from mistify.costs.network import NetworkCost
from mistify.costs.quantization import Quantization
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.packaging.assemble import Package, assemble
from mistify_server.worker.packaging.conversion.converter import Function, convert_function
from mistify_server.worker.packaging.conversion.representative import Examples, one_by_one, representative
from mistify_server.worker.packaging.conversion.result import Conversion, ConvertedNetworks

#: Where the converter says what LiteRT has no kernel for.
_LACKING = re.compile(r"^TF Select ops: (.*)$", re.MULTILINE)


def convert_graph(
    graph: FrozenGraph, quantization: QuantizationConfig | None = None, examples: Examples | None = None
) -> bytes:
    """A `.tflite` of a graph; `examples` are for integer packages, as of `convert`.

    Raises:
        MistifyError: INVALID_MODEL, LiteRT lacks an operation.
    """
    function = Function(graph, graph.inputs, graph.outputs)
    try:
        rows = None if examples is None else partial(one_by_one, examples)
        return convert_function(function, quantization or QuantizationConfig(), rows)
    except ConverterError as error:
        lacking = _LACKING.search(str(error))
        given = f"the operations {lacking[1]}" if lacking else str(error).strip().splitlines()[0][:200]
        raise invalid(
            "the graph", given, "operations that LiteRT has", "replace them, or give the Keras model itself"
        ) from error


def package_graph(
    graph: FrozenGraph, cost: NetworkCost, task: PackageTask, train: Dataset, test: Dataset
) -> Package:
    """Convert a graph, compare, measure, and describe it.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the package computes something else than the graph; INVALID_MODEL, it
            cannot be converted.
    """
    examples, quantization = None, task.settings.quantization
    if quantization.precision is Quantization.INT8:
        given = representative(train)
        examples = {spec.name: given[spec.name].astype(spec.dtype.as_numpy_dtype) for spec in graph.inputs}
    conversion = Conversion(
        networks=ConvertedNetworks(convert_graph(graph, quantization, examples)),
        inputs=[spec.name for spec in graph.inputs],
        outputs=graph.outputs,
        originals=[partial(_run, graph)],
        float32=partial(convert_graph, graph),
        accuracy=task.accuracy,
        cost=cost,
    )
    return assemble(conversion, task, objectives_for(graph.signature, train), test)


def _run(graph: FrozenGraph, inputs: Examples) -> dict[str, np.ndarray]:
    """What TensorFlow makes of a batch of inputs."""
    forward = tf.function(Function(graph, graph.inputs, graph.outputs).__call__, autograph=False)
    given = {spec.name: tf.cast(inputs[spec.name], spec.dtype) for spec in graph.inputs}
    return {name: output.numpy() for name, output in forward(**given).items()}
