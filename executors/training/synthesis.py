"""Inputs for a network without data, from which a smaller one can learn its outputs."""

from dataclasses import replace
from typing import Final

import keras
import numpy as np
import tensorflow as tf

from executors.data import Array, Dataset
from executors.data.errors import invalid
from executors.structure import analyse
from executors.structure.signature import Activation, Output, signature_of
from executors.timing import activity
from executors.training.evaluation import Evaluation, Tensors, call, examples_at_once
from executors.training.objectives import SMALLEST
from mistify.config.dataset import GENERATED
from mistify.errors import Problem

#: Inputs that are made at once at the most, and the steps in which they become what the network expects.
_BATCH: Final = 250
_STEPS: Final = 200

#: How fast the inputs change, as a share of their scale.
_RATE: Final = 0.05

#: Scales of noise that are tried for the first inputs.
_SCALES: Final = tuple(10.0 ** np.arange(-4, 5, 0.5))

layers = keras.layers


@activity("generating")
def generated(model: keras.Model, count: int, seed: int) -> Dataset:
    """Return inputs that look to a network like its training data, with its predictions as targets.

    Noise is changed by gradient steps until every batch norm sees the statistics that it knows from training,
    and until as many inputs are told to be of each class (Yin et al., Dreaming to Distill, 2020). Inputs
    that take no figures are tokens at random.

    Args:
        model: The network.
        count: How many examples.
        seed: Where the randomness starts from.

    Returns:
        The inputs; as targets the most probable class of outputs by softmax, 0 or 1 of outputs by sigmoid,
        and others as they are.

    Raises:
        MistifyError: INVALID_DATASET, some of them are no numbers.
    """
    dream = _Dream(model, min(count, _BATCH), np.random.default_rng(seed))
    batches = [dream.inputs() for _ in range(0, count, dream.at_once)]
    inputs = {name: np.concatenate([batch[name] for batch in batches])[:count] for name in batches[0]}
    outputs = Evaluation(model).outputs(inputs)
    for name, array in (*inputs.items(), *outputs.items()):
        if not np.isfinite(array).all():
            raise invalid(
                Problem(
                    f"{GENERATED}{count}", f"NaN or infinity in the {name} that was made", "finite figures",
                    "give data: on some inputs the model computes no numbers",
                )
            )  # fmt: skip
    targets = {output.name: _target(output, outputs[output.name]) for output in signature_of(model).outputs}
    return Dataset(inputs, targets)


class _Dream:
    """Makes inputs for one network.

    Attributes:
        at_once: How many, `most` or fewer, where the network is large.
    """

    def __init__(self, model: keras.Model, most: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._signature = signature_of(model)
        graph = analyse(model).graph
        norms = [node for node in graph.nodes if type(node.layer) is layers.BatchNormalization]
        self._norms = [node.layer for node in norms]
        watched = (*graph.outputs, *(node.inputs[0] for node in norms))
        self._watched = replace(graph, outputs=watched).build(lambda _, layer: layer, {})
        self.at_once = examples_at_once(self._watched, most, learning=True)
        self._scale = self._best_scale()
        figures = [tensor for tensor in self._signature.inputs if tensor.figures]
        self._changing = {
            tensor.name: tf.Variable(tf.zeros([self.at_once, *(size or 1 for size in tensor.shape)]))
            for tensor in figures
        }
        self._optimizer = keras.optimizers.Adam(_RATE * self._scale)
        self._optimizer.build(list(self._changing.values()))
        self._step = tf.function(self._improve, autograph=False)

    def inputs(self) -> dict[str, Array]:
        """Return a batch of examples by the names of the inputs."""
        wanted = {
            output.name: tf.constant(self._rng.integers(output.shape[0] or 1, size=self.at_once))
            for output in self._signature.outputs
            if output.activation is Activation.SOFTMAX and len(output.shape) == 1
        }
        noise = self._noise(self._scale)
        for name, variable in self._changing.items():
            variable.assign(noise[name])
        self._forget()
        tokens = {name: array for name, array in noise.items() if name not in self._changing}
        for _ in range(_STEPS if self._changing else 0):
            self._step(keras.tree.map_structure(tf.constant, tokens), wanted)
        return {**noise, **{name: variable.numpy() for name, variable in self._changing.items()}}

    def _forget(self) -> None:
        """Let the optimizer start anew."""
        _iterations, _rate, *moments = self._optimizer.variables
        self._optimizer.iterations.assign(0)
        for variable in moments:
            variable.assign(tf.zeros_like(variable))

    def _improve(self, tokens: Tensors, wanted: Tensors) -> None:
        variables = list(self._changing.values())
        with tf.GradientTape() as tape:
            loss = self._mismatch({**tokens, **self._changing}, wanted)
        self._optimizer.apply(tape.gradient(loss, variables), variables)

    def _best_scale(self) -> float:
        """Return the scale of the noise that is least unlike what the batch norms know."""
        if not self._norms:
            return 1.0
        misfits = [float(self._mismatch(self._noise(scale), {})) for scale in _SCALES]
        return float(_SCALES[int(np.argmin(misfits))])

    def _noise(self, scale: float) -> dict[str, Array]:
        noise: dict[str, Array] = {}
        for tensor in self._signature.inputs:
            shape = (self.at_once, *(size or 1 for size in tensor.shape))
            if tensor.figures:
                noise[tensor.name] = (scale * self._rng.normal(size=shape)).astype(np.float32)
            else:
                noise[tensor.name] = self._rng.integers(tensor.ids or 2, size=shape).astype(tensor.dtype)
        return noise

    def _mismatch(self, inputs: Tensors, wanted: Tensors) -> tf.Tensor:
        """Return how unlike the inputs are to what the batch norms know, and to the wanted classes."""
        seen = list(call(self._watched, inputs, training=False).values())
        outputs = [output.name for output in self._signature.outputs]
        normalised = seen[len(outputs) :]
        terms = [_unlike(norm, tensor) for norm, tensor in zip(self._norms, normalised, strict=True)]
        for name, output in zip(outputs, seen, strict=False):
            if name in wanted:
                likely = tf.gather(output, wanted[name], batch_dims=1)
                terms.append(-tf.reduce_mean(tf.math.log(likely + SMALLEST)))
        return tf.add_n(terms) if terms else tf.constant(0.0)


def _unlike(norm: keras.layers.Layer, tensor: tf.Tensor) -> tf.Tensor:
    """Return how far mean and variance of the channels are from those that a batch norm knows."""
    mean, variance = tf.nn.moments(tensor, axes=list(range(len(tensor.shape) - 1)))
    known = tf.convert_to_tensor(norm.moving_variance) + norm.epsilon
    off = tf.square(mean - tf.convert_to_tensor(norm.moving_mean)) / known
    wide = tf.square(tf.math.log((variance + norm.epsilon) / known))
    return tf.reduce_mean(off + wide)


def _target(output: Output, predicted: Array) -> Array:
    """Return a network's predictions in the form of targets."""
    if output.activation is Activation.SOFTMAX:
        return np.asarray(predicted.argmax(axis=-1), np.int64)
    return np.asarray(predicted >= 0.5, np.int64) if output.activation is Activation.SIGMOID else predicted
