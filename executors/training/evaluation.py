"""Evaluation of networks, with recalibrated batch-norm statistics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil, prod
from typing import Final, TypeVar

import keras
import numpy as np
import tensorflow as tf

from executors.data.dataset import Dataset
from executors.data.storage import Array, Rows
from executors.inspection.limits import GIB
from executors.outputs.confidence import reached_with_confidence
from executors.outputs.metrics import output_scores, score
from executors.outputs.objectives import Regression, objectives_of
from executors.structure import calls, tensors
from executors.structure.signature import output_names
from executors.timing import activity
from executors.training.batch_norm import quick_batch_norms
from mistify.config.data.metric import Metric
from mistify.config.data.targets import Scores, Target
from mistify.costs.layer import FLOAT_BYTES

Arrays = Mapping[str, Array]
Tensors = Mapping[str, tf.Tensor]
T = TypeVar("T")

EVALUATION_BATCH = 500
RECALIBRATION_BATCH = 250
RECALIBRATION_EXAMPLES = 500

#: The momentum of norms whose statistics are to move although theirs is 1.
_MOMENTUM: Final = 0.9

#: Maximum memory of a pass in bytes, estimated as a multiple of the largest tensor, because TensorFlow keeps
#: several.
_PASS_BYTES = 2 * GIB
_KEPT = 4


class Evaluation:
    """An evaluator of one network in its current state. Its forward passes are traced once."""

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self._calls = calls(model)
        self._norms = [
            layer
            for layer in model.layers
            if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
        ]
        self._run = compiled(partial(quick_call, model, training=False), model)
        self._adopt = compiled(partial(quick_call, model, training=True), model)

    def outputs(self, inputs: Arrays) -> dict[str, Array]:
        """Return the network's outputs for many inputs: output name -> [examples, ...]."""
        outputs: dict[str, Rows] = {}
        with activity("measuring"):
            at_once = examples_at_once(self.model, EVALUATION_BATCH)
            for at in range(0, _length(inputs), at_once):
                batch = {name: array[at : at + at_once] for name, array in inputs.items()}
                for name, output in self._run(batch).items():
                    outputs.setdefault(name, Rows()).append(output.numpy())
        return {name: rows.array() for name, rows in outputs.items()}

    def score(self, data: Dataset, metric: Metric) -> float:
        """Return a metric of the network on some data."""
        outputs = self.outputs(data.inputs)
        return score(metric, objectives_of(self.model, data), outputs, data.targets)

    def judge(
        self, data: Dataset, metric: Metric, metrics: Mapping[str, Metric], targets: Iterable[Target] = ()
    ) -> tuple[Scores, bool]:
        """Return the scores on some data, and whether targets are reached on other data with 90 % confidence.

        Args:
            data: Examples with true targets.
            metric: The metric that compares networks.
            metrics: Output name -> metric; the other outputs have the default metric of their kind.
            targets: The targets of goals.
        """
        objectives, outputs = objectives_of(self.model, data), self.outputs(data.inputs)
        arguments = objectives, outputs, data.targets
        scores = Scores(score(metric, *arguments), output_scores(*arguments, metrics))
        return scores, reached_with_confidence(targets, *arguments)

    def nats(self, data: Dataset) -> float | None:
        """Return the mean loss of an answer in nats, summed over the outputs; None if any output has figures.

        Args:
            data: Examples with true targets.
        """
        objectives = objectives_of(self.model, data)
        if any(isinstance(objective, Regression) for objective in objectives.values()):
            return None
        outputs = self.outputs(data.inputs)
        return sum(
            float(objective.loss(tf.cast(outputs[name], tf.float32), tf.constant(data.targets[name])))
            for name, objective in objectives.items()
        )

    def recalibrate(self, data: Dataset, seed: int = 0) -> None:
        """Set the statistics of every batch norm to those of the current network.

        They are the mean over `RECALIBRATION_EXAMPLES` examples: if it starts at zero, the running mean of n
        batches, or of n calls of a shared layer, is the mean times `1 - momentum^n`.
        """
        if not self._norms:
            return
        with activity("measuring"):
            order = np.random.default_rng(seed).permutation(len(data))[:RECALIBRATION_EXAMPLES]
            for norm in self._norms:
                if norm.momentum == 1:  # as in some ONNX files; such statistics would never move
                    norm.momentum = _MOMENTUM
                norm.moving_mean.assign(tf.zeros_like(norm.moving_mean))
                norm.moving_variance.assign(tf.zeros_like(norm.moving_variance))
            at_once = examples_at_once(self.model, RECALIBRATION_BATCH)
            batches = np.array_split(order, ceil(len(order) / at_once))
            for indices in batches:
                self._adopt({name: array[indices] for name, array in data.inputs.items()})
            for norm in self._norms:
                share = 1 - norm.momentum ** (len(batches) * self._calls[norm.name])
                norm.moving_mean.assign(norm.moving_mean / share)
                norm.moving_variance.assign(norm.moving_variance / share)


def evaluate(model: keras.Model, data: Dataset, metric: Metric = Metric.ACCURACY) -> float:
    """Return a metric of a network on some data."""
    return Evaluation(model).score(data, metric)


def recalibrate(model: keras.Model, data: Dataset, seed: int = 0) -> None:
    """Set the statistics of every batch norm to those of the current network.

    Args:
        model: A network, whose statistics are changed.
        data: Examples, of which at most `RECALIBRATION_EXAMPLES` are used.
        seed: Seed for the choice of the examples.
    """
    Evaluation(model).recalibrate(data, seed)


def examples_at_once(model: keras.Model, most: int, *, learning: bool = False) -> int:
    """Return the batch size for calls of a flat model: less than `most` if its tensors are large.

    Args:
        most: The maximum batch size.
        learning: Include memory for gradients, which need all tensors.
    """
    return examples_of_shapes((tensor.shape for tensor in tensors(model)), most, learning=learning)


def examples_of_shapes(shapes: Iterable[Sequence[int | None]], most: int, *, learning: bool = False) -> int:
    """Return the batch size for tensors of these shapes, batch dimension first, as `examples_at_once`."""
    sizes = [prod(size or 1 for size in shape) for shape in shapes]
    kept = sum(sizes) if learning else _KEPT * max(sizes)
    return int(max(1, min(most, _PASS_BYTES // (FLOAT_BYTES * kept))))


def call(model: keras.Model, inputs: Tensors, training: bool) -> dict[str, tf.Tensor]:
    """Call a model on its inputs by name; return its outputs by name.

    Accepts inputs of any type, and models with any input structure.

    Args:
        inputs: Input name -> [examples, ...].
        training: Whether layers are in training mode.

    Returns:
        Output name -> [examples, ...].
    """
    tensors_in_order = [tf.cast(inputs[tensor.name], tensor.dtype) for tensor in model.inputs]
    outputs = model(keras.tree.pack_sequence_as(model.input, tensors_in_order), training=training)
    return dict(zip(output_names(model), keras.tree.flatten(outputs), strict=True))


def quick_call(model: keras.Model, inputs: Tensors, training: bool) -> dict[str, tf.Tensor]:
    """Call a model as `call` does, with quick batch norms, while a function is traced."""
    with quick_batch_norms(model):
        return call(model, inputs, training=training)


def compiled(forward: Callable[[Tensors], T], model: keras.Model) -> Callable[[Arrays], T]:
    """Return a forward pass for any number of examples, traced at its first call."""
    signature = {
        tensor.name: tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype) for tensor in model.inputs
    }
    function = tf.function(forward, input_signature=[signature], autograph=False)

    def run(inputs: Arrays) -> T:
        with activity("tracing"):
            function.get_concrete_function()
        tensors_by_name = {
            name: tf.constant(inputs[name].astype(spec.dtype.as_numpy_dtype, copy=False))
            for name, spec in signature.items()
        }
        result: T = function(tensors_by_name)
        return result

    return run


def _length(inputs: Arrays) -> int:
    return len(next(iter(inputs.values())))
