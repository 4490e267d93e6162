"""Synthetic inputs for a network without data, used for distillation to a smaller one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from math import ceil, floor, inf
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from executors.data import Array, Dataset
from executors.outputs.objectives import SMALLEST, Floats, OutputObjective
from executors.outputs.pseudo_labels import with_pseudo_labels
from executors.structure import analyse
from executors.structure.signature import Activation, Output, signature_of
from executors.synthesis.mixing import with_mixed
from executors.synthesis.spectral_inputs import SpectralInputs
from executors.timing import activity
from executors.training.evaluation import Evaluation, Tensors, call, examples_at_once
from executors.training.trainer import cosine
from mistify.config.data.dataset import GENERATED

#: Maximum batch size of generated inputs, and optimization steps per batch.
_BATCH: Final = 125
_STEPS: Final = 14

#: Initial learning rate of the amplitudes, as a share of their scale.
_RATE: Final = 0.5

#: Weight of the class balance in the loss.
_BALANCE_WEIGHT: Final = 0.05

#: Minimum number of examples per class, as a share of an equal distribution.
_LEAST_SHARE: Final = 0.7

#: Weight of the cross-entropy with the classes assigned to examples.
_ASSIGNED_WEIGHT: Final = 0.1

#: Learning rate of moving examples to assigned classes, as a share of the initial rate.
_STEERING: Final = 0.5

#: Maximum number of rounds per batch in which examples are moved to other classes.
_STEERING_ROUNDS: Final = 4

#: Weight of the prediction entropy for networks without batch norms, relative to the class balance.
_ENTROPY_WEIGHT: Final = 0.2

#: Initial distributions: number of inputs per trial, scales, means as multiples of the scale, and spectral
#: decays. The best distribution is then optimized with this number of steps and learning rate.
_TRIED: Final = 20
_SCALES: Final = tuple(10.0 ** np.arange(-4, 5))
_MEANS: Final = (0.0, 2.0)
_FALLS: Final = (0.0, 1.5)
_FIRST_STEPS: Final = 30
_FIRST_RATE: Final = 0.1

#: Seconds between progress reports.
_REPORT_SECONDS: Final = 1.0

#: A function of the steps so far and the total number of steps.
OnStep = Callable[[int, int], None]

layers = keras.layers


def passes(count: int) -> int:
    """Return the number of forward and backward passes, in examples, for generating `count` examples."""
    return count * _STEPS


@activity("generating")
def generated(
    model: keras.Model,
    count: int,
    seed: int,
    *,
    to_train: bool = False,
    objectives: Mapping[str, OutputObjective] = MappingProxyType({}),
    on_step: OnStep = lambda step, steps: None,
) -> Dataset:
    """Return inputs that resemble a network's training data, with its predictions as targets.

    Smooth noise, a sum of cosines, is optimized until the batch-norm inputs have the statistics known from
    training (Yin et al., Dreaming to Distill, 2020), and until the softmax outputs choose every class equally
    often on average (Chen et al., Data-Free Learning of Student Networks, 2019). Each input may become an
    example of the nearest class, rather than an adversarial example of another class, which teaches little.
    Only if a class has too few examples are some moved towards it. Without batch norms there is no
    information on realistic inputs, so the network only has to be confident about each one. Inputs that are
    not figures are random tokens.

    Args:
        count: Number of examples.
        seed: Seed for all randomness.
        to_train: Add several times as many mixed examples, so that a network cannot memorize them.
        objectives: Output name -> its objective, if labelled data determine it.
        on_step: Called about once a second.

    Raises:
        MistifyError: INVALID_DATASET if some of the predictions are not finite.
    """
    rng = np.random.default_rng(seed)
    inputs = _Synthesis(model, count, rng).inputs(on_step)
    signature = signature_of(model)
    if to_train:
        inputs = with_mixed(inputs, signature, rng)
    outputs = Evaluation(model).outputs(inputs)
    return with_pseudo_labels(inputs, outputs, signature, source=f"{GENERATED}{count}", objectives=objectives)


class _Synthesis:
    """Inputs under construction for one network; they stay noise if the network gives no guidance.

    Args:
        count: Number of inputs.
        rng: Draws noise, tokens and boxes.

    Attributes:
        at_once: Batch size; smaller for large networks.
    """

    def __init__(self, model: keras.Model, count: int, rng: np.random.Generator) -> None:
        self._count, self._rng = count, rng
        self._signature = signature_of(model)
        self._shapes = {
            tensor.name: tuple(size or 1 for size in tensor.shape) for tensor in self._signature.inputs
        }
        graph = analyse(model).graph
        norms = [node for node in graph.nodes if type(node.layer) is layers.BatchNormalization]
        self._norms = [node.layer for node in norms]
        self._guided = bool(norms) or any(map(_of_classes, self._signature.outputs))
        watched = (*graph.outputs, *(node.inputs[0] for node in norms))
        self._watched = replace(graph, outputs=watched).build(lambda _, layer: layer, {})
        most = examples_at_once(self._watched, min(count, _BATCH), learning=True)
        self.at_once = ceil(count / ceil(count / most))
        self._spectral = {
            tensor.name: SpectralInputs(self._shapes[tensor.name])
            for tensor in self._signature.inputs
            if tensor.figures
        }
        if self._spectral and self._norms:
            self._fit_spectra()
        self._amplitudes = {
            name: tf.Variable(tf.zeros([self.at_once, *self._shapes[name]])) for name in self._spectral
        }
        amplitudes = [*self._amplitudes.values()]
        self._descent = _Descent(amplitudes, lambda tokens: self._mismatch(self._made(tokens)))
        self._steering = _Descent(
            amplitudes,
            lambda tensors: self._mismatch(self._made(tensors["tokens"]), tensors["wanted"]),
        )

    def inputs(self, on_step: OnStep) -> dict[str, Array]:
        """Return the inputs by name."""
        rates = _RATE * cosine(_STEPS if self._spectral and self._guided else 0)
        batches = ceil(self._count / self.at_once)
        reported, made = -inf, []
        for batch in range(batches):
            tokens = self._start()
            for step, rate in enumerate(rates, batch * len(rates)):
                if perf_counter() - reported > _REPORT_SECONDS:
                    reported = perf_counter()
                    on_step(step, batches * len(rates))
                self._descent.step(rate, tokens)
            self._steer(rates, tokens)
            made.append(self._made(tokens))
        return {name: np.concatenate([batch[name] for batch in made])[: self._count] for name in self._shapes}

    def _steer(self, rates: Floats, tokens: Tensors) -> None:
        """Move some examples of a batch to classes that have too few, in several rounds if necessary."""
        for _ in range(_STEERING_ROUNDS):
            outputs = call(self._watched, self._made(tokens), training=False)
            wanted = {
                name: lacking_classes(np.asarray(tensor))
                for output, (name, tensor) in zip(self._signature.outputs, outputs.items(), strict=False)
                if _of_classes(output) and len(tensor.shape) == len(("examples", "classes"))
            }
            if not any(array.any() for array in wanted.values()):
                break
            self._steering.restart()
            for rate in _STEERING * rates:
                self._steering.step(rate, {"tokens": tokens, "wanted": wanted})

    def _made(self, tokens: Tensors) -> dict[str, tf.Tensor]:
        return {**tokens, **self._sums(self._amplitudes)}

    def _start(self) -> Tensors:
        """Start a batch from noise; return its tokens."""
        for name, noise in self._noise(self.at_once).items():
            self._amplitudes[name].assign(noise)
        self._descent.restart()
        return {name: tf.constant(array) for name, array in self._tokens(self.at_once).items()}

    def _sums(self, amplitudes: Tensors) -> dict[str, tf.Tensor]:
        return {name: inputs(amplitudes[name]) for name, inputs in self._spectral.items()}

    def _fit_spectra(self) -> None:
        """Fit the scale and the means of the spectra to the batch-norm statistics, on a few inputs."""
        tried = min(self.at_once, _TRIED)
        tokens = self._tokens(tried)
        amplitudes = {name: tf.Variable(noise) for name, noise in self._noise(tried).items()}
        variables = [variable for inputs in self._spectral.values() for variable in inputs.variables]
        descent = _Descent(
            [*variables, *amplitudes.values()],
            lambda tensors: self._mismatch({**tensors, **self._sums(amplitudes)}),
        )

        for inputs in self._spectral.values():
            misfits = {}
            for start in product(_FALLS, _SCALES, _MEANS):
                inputs.configure(*start)
                misfits[start] = descent.step(0.0, tokens)
            inputs.configure(*min(misfits, key=misfits.__getitem__))
        descent.restart()
        for rate in _FIRST_RATE * cosine(_FIRST_STEPS):
            descent.step(rate, tokens)

    def _noise(self, count: int) -> dict[str, Floats]:
        return {
            tensor.name: self._rng.standard_normal((count, *self._shapes[tensor.name]), np.float32)
            for tensor in self._signature.inputs
            if tensor.figures
        }

    def _tokens(self, count: int) -> dict[str, Array]:
        return {
            tensor.name: self._rng.integers(tensor.ids or 2, size=(count, *self._shapes[tensor.name])).astype(
                tensor.dtype
            )
            for tensor in self._signature.inputs
            if not tensor.figures
        }

    def _mismatch(self, inputs: Tensors, wanted: Tensors = MappingProxyType({})) -> tf.Tensor:
        """Return the distance of the inputs' statistics from the batch norms', plus the class imbalance.

        Args:
            inputs: Input name -> [examples, ...].
            wanted: Output name -> 1 for the class assigned to an example [examples, classes].
        """
        named = call(self._watched, inputs, training=False)
        seen = list(named.values())
        outputs = self._signature.outputs
        normalised = seen[len(outputs) :]
        terms = [_distance(norm, tensor) for norm, tensor in zip(self._norms, normalised, strict=True)]
        terms += [
            _BALANCE_WEIGHT * _imbalance(tensor)
            if self._norms
            else _imbalance(tensor) + _ENTROPY_WEIGHT * _entropy(tensor)
            for output, tensor in zip(outputs, seen, strict=False)
            if _of_classes(output)
        ]
        terms += [_ASSIGNED_WEIGHT * _cross_entropy(named[name], classes) for name, classes in wanted.items()]
        return tf.add_n(terms)


def lacking_classes(probabilities: Floats) -> Floats:
    """Return 1 for the class to which an example should move, because it has too few [examples, classes].

    Examples are taken from classes with more than they need, the most probable ones first. The examples that
    a class already has stay.

    Args:
        probabilities: [examples, classes].
    """
    count, classes = probabilities.shape
    least, wanted = floor(_LEAST_SHARE * count / classes), np.zeros_like(probabilities)
    own = probabilities.argmax(axis=1)
    has = np.bincount(own, minlength=classes)
    for label in np.flatnonzero(has < least):
        wanted[own == label, label] = 1
        for example in np.argsort(-probabilities[:, label], kind="stable"):
            if has[label] < least < has[own[example]] and not wanted[example].any():
                wanted[example, label] = 1
                has[label] += 1
                has[own[example]] -= 1
    return wanted


class _Descent:
    """Minimization of a loss with Adam.

    Args:
        loss: Returns the loss, given the tensors passed to a step.
    """

    def __init__(self, variables: list[tf.Variable], loss: Callable[[Tensors], tf.Tensor]) -> None:
        self._variables, self._loss = variables, loss
        self._optimizer = keras.optimizers.Adam()
        self._optimizer.build(variables)
        self._run = tf.function(self._improve, autograph=False)

    def step(self, rate: float, arrays: Mapping[str, Any]) -> float:
        """Take a step; return the loss before it."""
        tensors = tf.nest.map_structure(tf.convert_to_tensor, dict(arrays))
        return float(self._run(tensors, tf.constant(rate, tf.float32)))

    def restart(self) -> None:
        """Reset the optimizer."""
        _iterations, _rate, *moments = self._optimizer.variables
        self._optimizer.iterations.assign(0)
        for variable in moments:
            variable.assign(tf.zeros_like(variable))

    def _improve(self, tensors: Tensors, rate: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = self._loss(tensors)
        self._optimizer.learning_rate.assign(rate)
        self._optimizer.apply(tape.gradient(loss, self._variables), self._variables)
        return loss


def _distance(norm: keras.layers.Layer, tensor: tf.Tensor) -> tf.Tensor:
    """Return the distance of the channels' mean and variance from a batch norm's statistics."""
    axes = list(range(len(tensor.shape) - 1))
    off_mean = tensor - tf.convert_to_tensor(norm.moving_mean)
    mean = tf.reduce_mean(off_mean, axes)
    # Accurate enough, as means are close to the known ones, and half the work of tf.nn.moments.
    variance = tf.nn.relu(tf.reduce_mean(tf.square(off_mean), axes) - tf.square(mean))
    known = tf.convert_to_tensor(norm.moving_variance) + norm.epsilon
    off = tf.square(mean) / known
    wide = tf.square(tf.math.log((variance + norm.epsilon) / known))
    return tf.reduce_mean(off + wide)


def _of_classes(output: Output) -> bool:
    return output.activation is Activation.SOFTMAX


def _imbalance(probabilities: tf.Tensor) -> tf.Tensor:
    """Return the gap between the entropy of the mean class probabilities and its maximum."""
    mean = tf.reduce_mean(probabilities, list(range(len(probabilities.shape) - 1)))
    return tf.math.log(float(mean.shape[0])) + tf.reduce_sum(mean * tf.math.log(mean + SMALLEST))


def _cross_entropy(probabilities: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy of the examples with an assigned class."""
    entropy = -tf.reduce_sum(wanted * tf.math.log(probabilities + SMALLEST))
    return tf.math.divide_no_nan(entropy, tf.reduce_sum(wanted))


def _entropy(probabilities: tf.Tensor) -> tf.Tensor:
    """Return the mean entropy of the class probabilities."""
    return -tf.reduce_mean(tf.reduce_sum(probabilities * tf.math.log(probabilities + SMALLEST), axis=-1))
