"""The objective of each output of a network, determined by its activation, its shape, and its targets.

| objective | output | targets |
| --- | --- | --- |
| `Categorical` | softmax or logits [n, ..., classes] | integers [n, ...]; positions of -1 are ignored |
| `Binary` | sigmoid or a logit, [n, ...] | integers 0 or 1, of the output's shape |
| `Regression` | any but softmax, [n, ...] | floats, of the output's shape; of a sigmoid 0 to 1 |

So a choice among positions (the start of a span) is one classification; labelling every position is many.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from scipy.special import expit, softmax

from executors.data.dataset import Dataset, joined
from executors.data.storage import Array
from executors.outputs.plugged_in import OutputKind, OutputLoss, plugged_in_loss
from executors.structure.signature import Activation, Output, Shape, Signature, signature_of
from mistify.config.data.dataset import DataSettings
from mistify.parsing.validation import InvalidValue

Floats = npt.NDArray[np.float32]

#: Smaller probabilities have meaningless logarithms in float32.
SMALLEST: Final = 1e-7

#: Targets with this class are ignored.
IGNORED: Final = -1

#: What to do with one-hot targets.
NUMBER_CLASSES: Final = (
    "give the number of each class, as np.argmax(targets, axis=-1) does for one-hot targets"
)

#: Approximate number of examples from which the deviation of figures is estimated.
_DEVIATION_EXAMPLES: Final = 1_000

#: Class of an unknown target; unknown figures are NaN. The teacher's predictions are still learned.
_UNKNOWN: Final = -2


@dataclass(frozen=True)
class OutputObjective(ABC):
    """The objective of one output: its loss, in TensorFlow, and its predictions, in NumPy.

    Attributes:
        weights: Weight of each class in the loss; None for equal weights.
        plugged_in: The loss of a plug-in, in place of the default one.
        kinds: The kinds of the output, by the names that plug-ins use.
    """

    kinds: ClassVar[frozenset[OutputKind]]
    activation: Activation
    weights: tuple[float, ...] | None = None
    plugged_in: OutputLoss | None = None

    def loss(self, output: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Return the loss of a batch: the mean over the known targets, or the loss of a plug-in."""
        answers, counts = self._answers(output, target)
        if self.plugged_in is not None:
            return self.plugged_in.loss(self.predicted(output), answers, counts)
        return _mean(self._losses(output, answers), counts)

    @abstractmethod
    def distillation(
        self, output: tf.Tensor, target: tf.Tensor, teacher: tf.Tensor, temperature: float
    ) -> tf.Tensor:
        """Return the mean distance of a batch from the teacher's predictions, of the output's shape.

        Args:
            output: The network's output [batch, ...].
            target: Targets of the batch, which determine the ignored positions.
            teacher: The teacher's predictions, of the output's shape.
            temperature: Softens class probabilities of the output and the teacher.
        """

    @abstractmethod
    def predictions(self, output: Array) -> Floats:
        """Return a network's predictions: probabilities, or the figures themselves, of the output's shape."""

    @abstractmethod
    def _answers(self, output: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the targets of a batch, with arbitrary values for unknown ones, and the weight of each."""

    @abstractmethod
    def _losses(self, output: tf.Tensor, answers: tf.Tensor) -> tf.Tensor:
        """Return the default loss of each target, of the targets' shape."""

    @abstractmethod
    def predicted(self, output: tf.Tensor) -> tf.Tensor:
        """Return the predictions as a TensorFlow tensor."""

    def distilled_loss(
        self,
        output: tf.Tensor,
        target: tf.Tensor,
        teacher: tf.Tensor | None,
        share: float,
        temperature: float,
    ) -> tf.Tensor:
        """Return the loss of a batch, with a `share` of distillation if there is a teacher.

        Args:
            output: The network's output [batch, ...].
            target: Targets of the batch [batch, ...].
            teacher: The teacher's predictions, of the output's shape; None without a teacher.
            share: Weight of the distillation loss, 0 to 1.
            temperature: Softens class probabilities of the output and the teacher.
        """
        output = tf.cast(output, tf.float32)
        loss = self.loss(output, target)
        if teacher is None:
            return loss
        return (1 - share) * loss + share * self.distillation(output, target, teacher, temperature)


class Categorical(OutputObjective):
    """One of several classes for each example or position, with a cross-entropy loss."""

    kinds = frozenset({OutputKind.CLASSES})

    def distillation(
        self, output: tf.Tensor, target: tf.Tensor, teacher: tf.Tensor, temperature: float
    ) -> tf.Tensor:
        """Return the cross entropy with the teacher's probabilities, both softened (Hinton et al., 2015)."""
        soft = tf.nn.softmax(tf.math.log(teacher + SMALLEST) / temperature)
        entropy = tf.nn.softmax_cross_entropy_with_logits(soft, self._logits(output) / temperature)
        return temperature**2 * _mean(entropy, tf.cast(target != IGNORED, tf.float32))

    def predictions(self, output: Array) -> Floats:
        """Return probabilities of the classes."""
        values = np.asarray(output, np.float32)
        return values if self.activation is Activation.SOFTMAX else softmax(values, axis=-1)

    def _answers(self, output: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        classes = tf.maximum(target, 0)
        counts = _known(target)
        if self.weights is not None:
            counts *= tf.gather(tf.constant(self.weights, tf.float32), classes)
        return classes, counts

    def _losses(self, output: tf.Tensor, answers: tf.Tensor) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(answers, self._logits(output))

    def predicted(self, output: tf.Tensor) -> tf.Tensor:
        """Return class probabilities of a batch, as a TensorFlow tensor."""
        return output if self.activation is Activation.SOFTMAX else tf.nn.softmax(output)

    def _logits(self, output: tf.Tensor) -> tf.Tensor:
        return tf.math.log(output + SMALLEST) if self.activation is Activation.SOFTMAX else output


class Binary(OutputObjective):
    """Binary labels, one or several for each example, with a cross-entropy loss."""

    kinds = frozenset({OutputKind.YES_OR_NO})

    def distillation(
        self, output: tf.Tensor, target: tf.Tensor, teacher: tf.Tensor, temperature: float
    ) -> tf.Tensor:
        """Return the cross entropy with the teacher's probabilities."""
        return tf.reduce_mean(self._entropy(output, teacher))

    def predictions(self, output: Array) -> Floats:
        """Return probabilities of the positive class."""
        values = np.asarray(output, np.float32)
        return values if self.activation is Activation.SIGMOID else expit(values)

    def _answers(self, output: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        target = tf.reshape(target, tf.shape(output))
        counts, answers = _known(target), tf.maximum(target, 0)
        if self.weights is not None:
            counts *= tf.gather(tf.constant(self.weights, tf.float32), tf.cast(answers, tf.int64))
        return tf.cast(answers, tf.float32), counts

    def _losses(self, output: tf.Tensor, answers: tf.Tensor) -> tf.Tensor:
        return self._entropy(output, answers)

    def predicted(self, output: tf.Tensor) -> tf.Tensor:
        """Return probabilities of the positive class for a batch, as a TensorFlow tensor."""
        return output if self.activation is Activation.SIGMOID else tf.sigmoid(output)

    def _entropy(self, output: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        if self.activation is Activation.SIGMOID:
            return -target * tf.math.log(output + SMALLEST) - (1 - target) * tf.math.log1p(SMALLEST - output)
        return tf.nn.sigmoid_cross_entropy_with_logits(target, output)


@dataclass(frozen=True)
class Regression(OutputObjective):
    """Figures, with a squared-error loss.

    Attributes:
        unit: The unit of errors in the loss. For targets that vary by more than 1, it is their standard
            deviation: the gradients of hidden layers grow with its square, so that networks of prices
            diverged. For others it is 1, because those of the last layer grow with the inverse.
    """

    kinds = frozenset({OutputKind.FIGURES, OutputKind.VECTORS})
    unit: float = 1.0

    def distillation(
        self, output: tf.Tensor, target: tf.Tensor, teacher: tf.Tensor, temperature: float
    ) -> tf.Tensor:
        """Return the mean squared distance from the teacher's figures, in units."""
        return tf.reduce_mean(self._losses(output, teacher))

    def predictions(self, output: Array) -> Floats:
        """Return the figures."""
        return np.asarray(output, np.float32)

    def _answers(self, output: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        target = tf.reshape(target, tf.shape(output))
        unknown = tf.math.is_nan(target)
        return tf.where(unknown, tf.zeros_like(target), target), tf.cast(~unknown, tf.float32)

    def _losses(self, output: tf.Tensor, answers: tf.Tensor) -> tf.Tensor:
        return tf.square((output - answers) / self.unit)

    def predicted(self, output: tf.Tensor) -> tf.Tensor:
        """Return the figures themselves for a batch, as a TensorFlow tensor."""
        return output


def objective_of(output: Output, target: Array) -> OutputObjective:
    """Return the objective of an output, from its targets [examples, ...].

    Raises:
        InvalidValue: Targets of this shape and type do not fit the output.
    """
    whole = np.issubdtype(target.dtype, np.integer)
    shape = target.shape[1:]
    fix = "reshape or cast them, or use another head"
    as_output = _fits(_squeezed(shape), _squeezed(output.shape))
    if whole and _fits(shape, output.shape[:-1]) and output.shape[-1:] not in ((), (1,)):
        if output.activation is not Activation.SIGMOID:
            return Categorical(output.activation)
    elif as_output and output.activation is Activation.SOFTMAX:
        fix = NUMBER_CLASSES
    elif as_output:
        if whole:
            return Binary(output.activation)
        return Regression(output.activation, unit=max(1.0, _deviation(target)))
    actual = f"targets of shape {target.shape} and type {target.dtype}"
    raise InvalidValue(actual, _expected(output), fix)


def objectives_of(
    model: keras.Model, data: Dataset, settings: DataSettings | None = None
) -> dict[str, OutputObjective]:
    """Return the objective of each of a model's outputs on checked data; see `objectives_for`.

    Args:
        model: A model whose outputs have the names of the data's targets.
        data: Training data.
    """
    return objectives_for(signature_of(model), data, settings)


def objectives_for(
    signature: Signature, data: Dataset, settings: DataSettings | None = None
) -> dict[str, OutputObjective]:
    """Return the objective of each output on data that have been checked against it, by name.

    Args:
        signature: A signature with outputs named like the data's targets.
        data: Training data.
        settings: The class weights, either given or "balanced": `n / (classes * n_of_class)`; and the losses
            of plug-ins for outputs.

    Raises:
        InvalidValue: The number of class weights differs from an output's number of classes.
    """
    settings = settings or DataSettings()
    weights, objectives = settings.class_weights, dict[str, OutputObjective]()
    for output in signature.outputs:
        target = data.targets[output.name]
        objective = objective_of(output, target)
        classes = class_count(objective, output)
        if weights is not None and classes:
            class_weights = _balanced(target, classes) if weights == "balanced" else tuple(weights)
            if len(class_weights) != classes:
                raise InvalidValue(
                    class_weights, f"{classes} weights for {output.name}", "give one for each class"
                )
            objective = replace(objective, weights=class_weights)
        if output.name in settings.losses:
            objective = replace(objective, plugged_in=plugged_in_loss(settings.losses[output.name]))
        objectives[output.name] = objective
    return objectives


def _deviation(figures: Array) -> float:
    """Return the standard deviation of figures [examples, ...] from their means over the examples.

    NaN stands for unknown figures, which do not count; without any known ones, the deviation is 0.
    """
    sample = np.asarray(figures[:: max(1, len(figures) // _DEVIATION_EXAMPLES)], np.float64)
    known = ~np.isnan(sample)
    counts = np.maximum(known.sum(axis=0), 1)
    means = np.where(known, sample, 0.0).sum(axis=0) / counts
    errors = np.where(known, sample - means, 0.0)
    return float(np.sqrt(np.mean(np.square(errors).sum(axis=0) / counts)))


def predictions(objectives: Mapping[str, OutputObjective], outputs: Mapping[str, Array]) -> dict[str, Floats]:
    """Return a network's predictions from its outputs, by name."""
    return {name: objective.predictions(outputs[name]) for name, objective in objectives.items()}


def with_unlabelled(data: Dataset, inputs: Mapping[str, Array]) -> Dataset:
    """Return the labelled examples, followed by others with unknown targets.

    Args:
        inputs: Input name -> [examples, ...].

    Raises:
        MistifyError: INVALID_DATASET if the inputs differ in shape from the labelled ones.
    """
    count = len(next(iter(inputs.values())))
    targets = {
        name: np.full(
            (count, *target.shape[1:]),
            _UNKNOWN if np.issubdtype(target.dtype, np.integer) else np.nan,
            target.dtype,
        )
        for name, target in data.targets.items()
    }
    return joined(data, Dataset(inputs, targets))


def class_count(objective: OutputObjective, output: Output) -> int:
    """Return the number of classes that an output distinguishes; 0 for figures."""
    if isinstance(objective, Categorical):
        return output.shape[-1] or 0
    return 2 if isinstance(objective, Binary) else 0


def _balanced(target: Array, classes: int) -> tuple[float, ...]:
    counts = np.bincount(target[target >= 0].astype(np.int64), minlength=classes)
    return tuple(float(weight) for weight in counts.sum() / (classes * np.maximum(counts, 1)))


def _fits(shape: Shape, wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(
        size in (None, actual) for size, actual in zip(wanted, shape, strict=True)
    )


def _squeezed(shape: Shape) -> Shape:
    return shape[:-1] if shape[-1:] == (1,) else shape


def _expected(output: Output) -> str:
    same = f"[{', '.join(_sizes(output))}]"
    if output.activation is Activation.SIGMOID:
        return f"0 or 1, or figures from 0 to 1, {same}"
    if output.activation is Activation.SOFTMAX:
        return expected_classes(output)
    if output.shape[-1:] in ((), (1,)):
        return f"floats {same}"
    return f"{expected_classes(output)} or floats {same}"


def expected_classes(output: Output) -> str:
    """Describe targets that are classes of an output, for errors."""
    return f"integer classes [{', '.join(_sizes(output)[:-1])}]"


def _sizes(output: Output) -> list[str]:
    return ["n", *("any" if size is None else str(size) for size in output.shape)]


def _known(target: tf.Tensor) -> tf.Tensor:
    """Return 1 for class targets that are neither ignored nor unknown, 0 for others."""
    return tf.cast(target >= 0, tf.float32)


def _mean(values: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(values * counts) / tf.maximum(tf.reduce_sum(counts), SMALLEST)
