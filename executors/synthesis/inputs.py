"""Inputs for a network without data, from which a smaller one can learn its outputs."""

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

#: Inputs that are made at once at most, and the steps in which they become what the network expects.
_BATCH: Final = 125
_STEPS: Final = 14

#: How fast the amplitudes change at first, as a share of their scale.
_RATE: Final = 0.5

#: How much it counts that classes are seen equally often.
_CLASSES: Final = 0.05

#: Share of an even number of examples that every class has at least.
_LEAST_SHARE: Final = 0.7

#: How much it counts that examples become of the classes that are wanted of them.
_WANTED: Final = 0.1

#: How fast, as a share of how fast it became what it is.
_STEERING: Final = 0.5

#: How often a batch is changed at most until they have.
_MOST_STEERED: Final = 4

#: How much it counts without batch norms that the network is sure of each, as a share of that.
_SURE: Final = 0.2

#: First inputs that are tried: so many at once, of these scales and means, as multiples of the scale. The
#: best are improved in so many steps, at this rate.
_TRIED: Final = 20
_SCALES: Final = tuple(10.0 ** np.arange(-4, 5))
_MEANS: Final = (0.0, 2.0)
_FALLS: Final = (0.0, 1.5)
_FIRST_STEPS: Final = 30
_FIRST_RATE: Final = 0.1

#: Seconds between two reports.
_PACE: Final = 1.0

#: Takes the steps so far, and the steps in all.
OnStep = Callable[[int, int], None]

layers = keras.layers


def passes(count: int) -> int:
    """Return how many examples a network is called on, and back, for so many to be generated."""
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
    """Return inputs that look to a network like its training data, with its answers as targets.

    Smooth noise, a sum of waves, is changed by gradient steps until every batch norm sees the statistics that
    it knows from training (Yin et al., Dreaming to Distill, 2020), and until the network's outputs by softmax
    choose every class equally often on average (Chen et al., Data-Free Learning of Student Networks, 2019).
    Each input may become an example of the nearest class, rather than an adversarial example of another,
    which teaches little. Only if a class has too few examples are some pushed towards it. Without batch norms
    nothing shows which inputs are realistic, and the network only has to be sure of each. Inputs that take no
    figures are tokens at random.

    Args:
        count: Number of examples.
        seed: Seed for everything random.
        to_train: Mix several times as many from those, so that a network cannot learn them by heart.
        objectives: Output name -> its objective, where labelled data show it.
        on_step: Called about once a second.

    Raises:
        MistifyError: INVALID_DATASET, some of the answers are no numbers.
    """
    rng = np.random.default_rng(seed)
    inputs = _Synthesis(model, count, rng).inputs(on_step)
    signature = signature_of(model)
    if to_train:
        inputs = with_mixed(inputs, signature, rng)
    outputs = Evaluation(model).outputs(inputs)
    return with_pseudo_labels(inputs, outputs, signature, source=f"{GENERATED}{count}", objectives=objectives)


class _Synthesis:
    """Inputs in the making, for one network: noise, where nothing shows which inputs it expects.

    Args:
        count: Number of inputs.
        rng: Chooses noise, tokens and classes.

    Attributes:
        at_once: Number of inputs that are made at once: fewer where the network is large.
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
            lambda given: self._mismatch(self._made(given["tokens"]), given["wanted"]),
        )

    def inputs(self, on_step: OnStep) -> dict[str, Array]:
        """Return the inputs by their names."""
        rates = _RATE * cosine(_STEPS if self._spectral and self._guided else 0)
        batches = ceil(self._count / self.at_once)
        reported, made = -inf, []
        for batch in range(batches):
            tokens = self._start()
            for step, rate in enumerate(rates, batch * len(rates)):
                if perf_counter() - reported > _PACE:
                    reported = perf_counter()
                    on_step(step, batches * len(rates))
                self._descent.step(rate, tokens)
            self._steer(rates, tokens)
            made.append(self._made(tokens))
        return {name: np.concatenate([batch[name] for batch in made])[: self._count] for name in self._shapes}

    def _steer(self, rates: Floats, tokens: Tensors) -> None:
        """Change some examples of a batch into ones of classes that have too few, as often as it takes."""
        for _ in range(_MOST_STEERED):
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
        """Give the spectra the scale and the means that batch norms know, estimated from a few inputs."""
        tried = min(self.at_once, _TRIED)
        tokens = self._tokens(tried)
        amplitudes = {name: tf.Variable(noise) for name, noise in self._noise(tried).items()}
        variables = [variable for inputs in self._spectral.values() for variable in inputs.variables]
        descent = _Descent(
            [*variables, *amplitudes.values()],
            lambda given: self._mismatch({**given, **self._sums(amplitudes)}),
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
        """Return the distance of the inputs' statistics from the batch norms', and the imbalance of classes.

        Args:
            inputs: Input name -> [examples, ...].
            wanted: Output name -> 1 for the class that an example should have [examples, classes].
        """
        named = call(self._watched, inputs, training=False)
        seen = list(named.values())
        outputs = self._signature.outputs
        normalised = seen[len(outputs) :]
        terms = [_unlike(norm, tensor) for norm, tensor in zip(self._norms, normalised, strict=True)]
        terms += [
            _CLASSES * _unevenness(tensor)
            if self._norms
            else _unevenness(tensor) + _SURE * _uncertainty(tensor)
            for output, tensor in zip(outputs, seen, strict=False)
            if _of_classes(output)
        ]
        terms += [_WANTED * _unlikely(named[name], classes) for name, classes in wanted.items()]
        return tf.add_n(terms)


def lacking_classes(probabilities: Floats) -> Floats:
    """Return 1 for the class that an example should change to, because it has too few [examples, classes].

    They are taken from classes with more examples than they need, the likeliest for the class first. The
    examples that a class has stay.

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
    """Steps of Adam down a loss.

    Args:
        loss: Returns the loss of the tensors that a step is given.
    """

    def __init__(self, variables: list[tf.Variable], loss: Callable[[Tensors], tf.Tensor]) -> None:
        self._variables, self._loss = variables, loss
        self._optimizer = keras.optimizers.Adam()
        self._optimizer.build(variables)
        self._run = tf.function(self._improve, autograph=False)

    def step(self, rate: float, given: Mapping[str, Any]) -> float:
        """Take a step; returns the loss before it."""
        tensors = tf.nest.map_structure(tf.convert_to_tensor, dict(given))
        return float(self._run(tensors, tf.constant(rate, tf.float32)))

    def restart(self) -> None:
        """Forget the steps so far."""
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


def _unlike(norm: keras.layers.Layer, tensor: tf.Tensor) -> tf.Tensor:
    """Return the distance of the channels' mean and variance from those that a batch norm knows."""
    axes = list(range(len(tensor.shape) - 1))
    off_mean = tensor - tf.convert_to_tensor(norm.moving_mean)
    mean = tf.reduce_mean(off_mean, axes)
    # Exact enough, as means are close to those known, and half the work of tf.nn.moments.
    variance = tf.nn.relu(tf.reduce_mean(tf.square(off_mean), axes) - tf.square(mean))
    known = tf.convert_to_tensor(norm.moving_variance) + norm.epsilon
    off = tf.square(mean) / known
    wide = tf.square(tf.math.log((variance + norm.epsilon) / known))
    return tf.reduce_mean(off + wide)


def _of_classes(output: Output) -> bool:
    return output.activation is Activation.SOFTMAX


def _unevenness(probabilities: tf.Tensor) -> tf.Tensor:
    """Return the gap between the entropy of the mean probabilities of classes and its maximum."""
    mean = tf.reduce_mean(probabilities, list(range(len(probabilities.shape) - 1)))
    return tf.math.log(float(mean.shape[0])) + tf.reduce_sum(mean * tf.math.log(mean + SMALLEST))


def _unlikely(probabilities: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy of the examples for which a class is wanted."""
    entropy = -tf.reduce_sum(wanted * tf.math.log(probabilities + SMALLEST))
    return tf.math.divide_no_nan(entropy, tf.reduce_sum(wanted))


def _uncertainty(probabilities: tf.Tensor) -> tf.Tensor:
    """Return the mean entropy of the probabilities of classes."""
    return -tf.reduce_mean(tf.reduce_sum(probabilities * tf.math.log(probabilities + SMALLEST), axis=-1))
