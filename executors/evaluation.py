"""What a network says: its probabilities and its accuracy, with batch-norm statistics that are true of it."""

from collections.abc import Callable
from typing import TypeVar

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.data import Dataset
from executors.timesheet import activity

Array = npt.NDArray[np.float32]
T = TypeVar("T")

EVALUATION_BATCH = 500
RECALIBRATION_BATCH = 250
RECALIBRATION_EXAMPLES = 1_000

# Below this a probability's logarithm says nothing in float32.
SMALLEST = 1e-7


class Evaluation:
    """Evaluates one network as it is at each call. Its forward passes are traced once."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
        self._predict = compiled(self._outputs, model)
        self._adopt = compiled(lambda inputs: call(model, inputs, training=True), model)

    def probabilities(self, inputs: npt.NDArray[np.generic]) -> Array:
        """What the classifier says of many inputs [examples, classes]."""
        with activity("measuring"):
            starts = range(0, len(inputs), EVALUATION_BATCH)
            batches = [self._predict(_float(inputs[at : at + EVALUATION_BATCH])).numpy() for at in starts]
            return np.concatenate(batches)

    def accuracy(self, data: Dataset) -> float:
        """Share of examples whose class the classifier tells right."""
        return float(np.mean(self.probabilities(data.x).argmax(axis=1) == data.y))

    def recalibrate(self, data: Dataset, seed: int = 0) -> None:
        """Set the statistics of every batch norm to those of the network as it is now.

        They are the mean over `RECALIBRATION_EXAMPLES` examples: starting at zero, the running mean of n
        batches is the mean times `1 - momentum^n`.
        """
        if not self._norms:
            return
        with activity("measuring"):
            order = np.random.default_rng(seed).permutation(len(data))[:RECALIBRATION_EXAMPLES]
            for norm in self._norms:
                norm.moving_mean.assign(tf.zeros_like(norm.moving_mean))
                norm.moving_variance.assign(tf.zeros_like(norm.moving_variance))
            batches = range(0, len(order), RECALIBRATION_BATCH)
            for at in batches:
                self._adopt(_float(data.x[order[at : at + RECALIBRATION_BATCH]]))
            for norm in self._norms:
                share = 1 - norm.momentum ** len(batches)
                norm.moving_mean.assign(norm.moving_mean / share)
                norm.moving_variance.assign(norm.moving_variance / share)

    def _outputs(self, inputs: tf.Tensor) -> tf.Tensor:
        outputs = call(self._model, inputs, training=False)
        return outputs if ends_in_softmax(self._model) else tf.nn.softmax(outputs)


def probabilities(model: keras.Model, inputs: npt.NDArray[np.generic]) -> Array:
    """What a classifier says of many inputs [examples, classes]."""
    return Evaluation(model).probabilities(inputs)


def accuracy(model: keras.Model, data: Dataset) -> float:
    """Share of examples whose class a classifier tells right."""
    return Evaluation(model).accuracy(data)


def recalibrate(model: keras.Model, data: Dataset, seed: int = 0) -> None:
    """Set the statistics of every batch norm to those of the network as it is now."""
    Evaluation(model).recalibrate(data, seed)


def call(model: keras.Model, inputs: tf.Tensor, training: bool) -> tf.Tensor:
    """Call a model of one input, in whichever structure it expects the input."""
    return model([inputs] if isinstance(model.input, list) else inputs, training=training)


def ends_in_softmax(model: keras.Model) -> bool:
    """Whether a classifier's outputs are probabilities (else they are logits)."""
    last = model.outputs[0]._keras_history.operation
    activation_of_last = getattr(last, "activation", None)
    return isinstance(last, keras.layers.Softmax) or activation_of_last is keras.activations.softmax


def log_probabilities(model: keras.Model, outputs: tf.Tensor) -> tf.Tensor:
    """Logits of a classifier's outputs, which are probabilities or logits already."""
    return tf.math.log(outputs + SMALLEST) if ends_in_softmax(model) else outputs


def compiled(forward: Callable[[tf.Tensor], T], model: keras.Model) -> Callable[[Array], T]:
    """A forward pass for any number of examples, traced when it is first called."""
    function = tf.function(
        forward, input_signature=[tf.TensorSpec([None, *model.inputs[0].shape[1:]])], autograph=False
    )

    def run(inputs: Array) -> T:
        with activity("tracing"):
            function.get_concrete_function()
        found: T = function(tf.constant(inputs))
        return found

    return run


def _float(inputs: npt.NDArray[np.generic]) -> Array:
    return inputs.astype(np.float32, copy=False)
