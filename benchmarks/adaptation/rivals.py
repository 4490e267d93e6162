"""Other methods of adaptation at test time, in TensorFlow, on networks whose batch norms are not folded.

LeanTTA (arXiv 2503.15889) mixes the statistics of each example with the shipped ones, by their distance, and
keeps no state. TENT (Wang et al., 2021) uses the statistics of each batch and minimizes the entropy of its
predictions by factors and summands of the norms. Entropy alone, with the shipped statistics, is what a
package without batch norms can do (`PackageTrainer.adapt_step`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

Images = npt.NDArray[np.float32]

#: Replaces a batch norm: takes the layer, what it reads, and its factor and summand.
Norm = Callable[[Any, Any, Any, Any], Any]

#: Examples of a batch, and the shipped examples that its statistics are mixed with.
_BATCH: Final = 16
_PRIOR: Final = 16.0

#: Method -> settings that are tried; the best one counts.
SETTINGS: Final[Mapping[str, Sequence[float]]] = {
    "leantta": (0.1, 0.3, 0.6, 1.0),
    "tent": (1e-4, 1e-3, 1e-2),
    "entropy": (1e-4, 1e-3, 1e-2),
}


class Rival:
    """A network that another method adapts while it answers.

    Args:
        model: A network with batch norms and one output of classes; it is not changed.
        method: A key of `SETTINGS`.
        setting: The weight of LeanTTA, or the learning rate.
    """

    def __init__(self, model: keras.Model, method: str, setting: float) -> None:
        self._model = model
        layers = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
        self._layers = layers
        self._factors = {layer.name: tf.Variable(layer.gamma) for layer in layers}
        self._summands = {layer.name: tf.Variable(layer.beta) for layer in layers}
        norms: dict[str, Norm] = {"leantta": partial(_of_example, weight=setting), "tent": _of_batch}
        norm = norms.get(method, _shipped)
        learns = [] if method == "leantta" else [*self._summands.values()]
        learns += [*self._factors.values()] if method == "tent" else []
        self._step = tf.function(partial(self._answer, norm, learns, setting))

    def reset(self) -> Self:
        """Return this network as it was."""
        for layer in self._layers:
            self._factors[layer.name].assign(layer.gamma)
            self._summands[layer.name].assign(layer.beta)
        return self

    def answers(self, images: Images) -> npt.NDArray[np.int64]:
        """Return the predicted classes of a stream [n]; each batch is answered, and then learnt from."""
        parts = [self._step(tf.constant(images[at : at + _BATCH])) for at in range(0, len(images), _BATCH)]
        return np.concatenate([part.numpy().argmax(axis=1) for part in parts])

    def _answer(self, norm: Norm, learns: Sequence[Any], rate: float, images: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = self._run(norm, images)
            loss = -tf.reduce_mean(tf.reduce_sum(outputs * tf.math.log(outputs + 1e-7), -1))
        for variable, gradient in zip(learns, tape.gradient(loss, learns), strict=True):
            variable.assign_sub(rate * gradient)
        return outputs

    def _run(self, norm: Norm, images: Any) -> Any:
        values = {id(self._model.inputs[0]): images}
        for layer in self._model.layers[1:]:
            read = [values[id(tensor)] for tensor in tf.nest.flatten(layer.input)]
            if layer.name in self._factors:
                made = norm(layer, read[0], self._factors[layer.name], self._summands[layer.name])
            else:
                made = layer(read if len(read) > 1 else read[0], training=False)
            values[id(layer.output)] = made
        return values[id(self._model.outputs[0])]


def _normed(layer: Any, read: Any, statistics: tuple[Any, Any], factor: Any, summand: Any) -> Any:
    mean, variance = statistics
    return (read - mean) * tf.math.rsqrt(variance + layer.epsilon) * factor + summand


def _shipped(layer: Any, read: Any, factor: Any, summand: Any) -> Any:
    return _normed(layer, read, (layer.moving_mean, layer.moving_variance), factor, summand)


def _of_batch(layer: Any, read: Any, factor: Any, summand: Any) -> Any:
    count = tf.cast(tf.shape(read)[0], tf.float32)
    mean, variance = tf.nn.moments(read, list(range(len(read.shape) - 1)))
    mixed = _mixed(layer, mean, variance, count / (count + _PRIOR))
    return _normed(layer, read, mixed, factor, summand)


def _of_example(layer: Any, read: Any, factor: Any, summand: Any, *, weight: float) -> Any:
    mean, variance = tf.nn.moments(read, list(range(1, len(read.shape) - 1)), keepdims=True)
    distance = tf.abs(mean - layer.moving_mean) / tf.sqrt(layer.moving_variance + layer.epsilon)
    share = weight * tf.clip_by_value(tf.reduce_mean(distance, -1, keepdims=True), 0.0, 1.0)
    return _normed(layer, read, _mixed(layer, mean, variance, share), factor, summand)


def _mixed(layer: Any, mean: Any, variance: Any, share: Any) -> tuple[Any, Any]:
    """Return the statistics of the shipped examples and of others together."""
    shipped, spread = layer.moving_mean, layer.moving_variance
    both = (1 - share) * shipped + share * mean
    own, others = spread + tf.square(shipped - both), variance + tf.square(mean - both)
    return both, (1 - share) * own + share * others
