"""A network with branches as a TensorFlow SavedModel, the form used in the paper (6)."""

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras
import tensorflow as tf

from executors.structure import fold_batch_norm, split
from executors.structure.exporting import NamedFunction
from executors.structure.reading.reader import read_graph
from mistify.package.manifest import BRANCH_INPUT
from mistify_server.worker.packaging.conversion.branches import Branches
from mistify_server.worker.packaging.conversion.converter import save_function

SAVED_MODEL = "saved_model.zip"


def zipped_saved_model(branches: Branches) -> bytes:
    """Return the zip file of a float32 SavedModel that selects branches with `tf.switch_case`.

    Its signature has the same inputs and outputs as `serve.tflite`. The variables of the base are stored
    once.
    """
    with TemporaryDirectory() as directory:
        save_function(_function(branches), directory)
        return _zipped(Path(directory))


def _function(branches: Branches) -> NamedFunction:
    folded = [fold_batch_norm(network.model) for network in branches.networks]
    parts = [split(read_graph(model), branches.base) for model in folded]
    base, tails = _built(parts[0][0]), [_built(tail) for _, tail in parts]

    def forward(*inputs: Any) -> Any:
        *tensors, branch = inputs
        shared = tf.nest.flatten(_call(base, tensors)) if branches.base else tensors
        nearest = tf.clip_by_value(branch, 0, len(tails) - 1)
        return tf.switch_case(nearest, [_applied(tail, shared) for tail in tails])

    like = NamedFunction.like(folded[0], forward)
    choice = tf.TensorSpec((), tf.int32, BRANCH_INPUT)
    return NamedFunction(forward, [*like.inputs, choice], like.outputs, [base, *tails])


def _applied(tail: keras.Model, shared: Sequence[Any]) -> Callable[[], Any]:
    return lambda: tf.nest.flatten(_call(tail, shared))


def _call(model: keras.Model, inputs: Sequence[Any]) -> Any:
    return model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)


def _built(graph: Any) -> keras.Model:
    return graph.build(lambda _, layer: layer, {})


def _zipped(directory: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(directory.rglob("*")):
            file.write(path, path.relative_to(directory))
    return content.getvalue()
