"""The signatures of `train.tflite` and their conversion."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from executors.outputs.objectives import Binary, Categorical, OutputObjective
from executors.structure.signature import output_names
from mistify.config.package.tuning import TuningConfig
from mistify.package.training import (
    ADAPT_STEP,
    EVALUATE,
    INFER,
    KD_WEIGHT,
    LEARNING_RATE,
    RESET,
    RESTORE,
    TRAIN_STEP,
    WEIGHTS,
)
from mistify_server.worker.packaging.training.entropy import correct, mean_entropy
from mistify_server.worker.packaging.training.operations import (  # noqa: F401  (they register replacements)
    elementwise,
    indexing,
    pooling,
    products,
)
from mistify_server.worker.packaging.training.operations.builtins import (
    UntrainableError,
    in_builtins,
    with_sums_of_two,
)
from mistify_server.worker.packaging.training.operations.convolutions import (  # noqa: F401  (as above)
    convolution,
    depthwise,
)
from mistify_server.worker.packaging.training.optimizers import OPTIMIZERS
from mistify_server.worker.packaging.training.parts import scales_and_shifts
from mistify_server.worker.resource_errors import RESOURCE_ERRORS

Tensors = dict[str, Any]
Signatures = Mapping[str, Any]

#: Computes a loss from the outputs of a batch, and from the inputs of a signature.
LossOfOutputs = Callable[[Tensors, Tensors], Any]


def tensor_of(number: int) -> str:
    """Return the name of a weight in signatures."""
    return f"weight_{number}"


def target_of(output: str) -> str:
    """Return the name of an output's targets in signatures."""
    return f"target_{output}"


def teacher_of(output: str) -> str:
    """Return the name of a teacher's predictions for an output in signatures."""
    return f"teacher_{output}"


class TrainingNetwork(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """A network with its weights as variables, and their training steps.

    Args:
        model: The network with batch norm folded.
        trained: Name -> trained weight; other weights are constants.
        objectives: Output -> its objective.
    """

    def __init__(
        self,
        model: keras.Model,
        trained: Mapping[str, keras.Variable],
        objectives: Mapping[str, OutputObjective],
        tuning: TuningConfig,
    ) -> None:
        super().__init__()
        self._model, self._batch = model, tuning.batch_size
        self._micro_batch = tuning.micro_batch or tuning.batch_size
        self.objectives = dict(objectives)
        self._outputs = output_names(model)
        self._trained = {id(variable): at for at, variable in enumerate(trained.values())}
        self.weights = [
            tf.Variable(variable.numpy(), name=tensor_of(at)) for at, variable in enumerate(trained.values())
        ]
        self._adaptable = [list(trained).index(name) for name in scales_and_shifts(list(trained))]
        self.optimizer = OPTIMIZERS[tuning.optimizer](self.weights)
        self._constants = {
            id(variable): variable.numpy()
            for variable in (*model.trainable_variables, *model.non_trainable_variables)
            if id(variable) not in self._trained
        }

    @property
    def adapts(self) -> bool:
        """Return whether the entropy of outputs can be minimized by training scales and shifts."""
        return bool(self._adaptable) and any(map(_has_entropy, self.objectives.values()))

    def signatures(self) -> Signatures:
        """Return the functions for LiteRT by name."""
        batch, free = self._specs(self._batch), self._specs(None)
        scalars = [tf.TensorSpec((), tf.float32, name) for name in (KD_WEIGHT, LEARNING_RATE)]
        weights = [
            tf.TensorSpec(weight.shape, tf.float32, tensor_of(at)) for at, weight in enumerate(self.weights)
        ]
        functions = {
            TRAIN_STEP: (self._train, [*batch["inputs"], *batch["targets"], *batch["teachers"], *scalars]),
            INFER: (self._infer, free["inputs"]),
            EVALUATE: (self._evaluate, [*free["inputs"], *free["targets"]]),
            WEIGHTS: (self._read, []),
            RESTORE: (self._restore, weights),
            RESET: (self._reset, []),
        }
        if self.adapts:
            functions[ADAPT_STEP] = (self._adapt, [*batch["inputs"], scalars[1]])
        return {name: _concrete(function, specs) for name, (function, specs) in functions.items()}

    def _specs(self, batch: int | None) -> dict[str, list[tf.TensorSpec]]:
        outputs = dict(zip(self._outputs, self._model.outputs, strict=True))
        return {
            "inputs": [
                tf.TensorSpec((batch, *tensor.shape[1:]), tensor.dtype, tensor.name)
                for tensor in self._model.inputs
            ],
            "targets": [
                _target_spec(outputs[name], objective, batch, target_of(name))
                for name, objective in self.objectives.items()
            ],
            "teachers": [
                tf.TensorSpec((batch, *outputs[name].shape[1:]), tf.float32, teacher_of(name))
                for name in self.objectives
            ],
        }

    def _train(self, **tensors: Any) -> Tensors:
        """Take a step on the targets and, weighted by `kd_weight`, on a teacher's predictions (5.1, iii)."""
        rate = tensors.pop(LEARNING_RATE)
        loss, gradients = self._differentiated(self.loss, tensors, self.weights)
        self.optimizer.apply(self.weights, gradients, rate)
        return {"loss": loss}

    def _adapt(self, **tensors: Any) -> Tensors:
        """Take a plain gradient step on the entropy of outputs, for inputs without targets."""
        rate = tensors.pop(LEARNING_RATE)
        chosen = [self.weights[at] for at in self._adaptable]
        loss, gradients = self._differentiated(self._entropy, tensors, chosen)
        for weight, gradient in zip(chosen, gradients, strict=True):
            weight.assign_sub(rate * gradient)
        return {"loss": loss}

    def _infer(self, **inputs: Any) -> Tensors:
        outputs: Tensors = in_builtins(self.call)(self._values(), inputs)
        return outputs

    def _evaluate(self, **tensors: Any) -> Tensors:
        """Return the loss, the number of correctly predicted targets, and the number of targets."""
        measured: Tensors = in_builtins(self._measured)(self._values(), tensors)
        return measured

    def _read(self) -> Tensors:
        return {tensor_of(at): tf.identity(weight) for at, weight in enumerate(self.weights)}

    def _restore(self, **values: Any) -> Tensors:
        for at, weight in enumerate(self.weights):
            weight.assign(values[tensor_of(at)])
        return {"restored": tf.constant(len(self.weights))}

    def _reset(self) -> Tensors:
        self.optimizer.reset()
        return {"reset": tf.constant(len(self.optimizer.state))}

    def _values(self) -> list[Any]:
        return [tf.convert_to_tensor(weight) for weight in self.weights]

    def _differentiated(
        self, loss_of: LossOfOutputs, tensors: Tensors, weights: Sequence[tf.Variable]
    ) -> tuple[Any, list[Any]]:
        """Return a loss and its gradients with respect to some of the weights."""
        places = [next(at for at, weight in enumerate(self.weights) if weight is one) for one in weights]
        gradients_of = self._gradients if self._micro_batch == self._batch else self._summed_gradients

        def differentiated(values: list[Any], tensors: Tensors) -> tuple[Any, list[Any]]:
            loss, gradients = gradients_of(loss_of, values, [values[at] for at in places], tensors)
            return loss, [
                tf.zeros(weight.shape) if gradient is None else tf.convert_to_tensor(gradient)
                for weight, gradient in zip(weights, gradients, strict=True)
            ]

        loss, gradients = with_sums_of_two(differentiated)(self._values(), tensors)
        return loss, gradients

    def _gradients(
        self, loss_of: LossOfOutputs, values: list[Any], chosen: list[Any], tensors: Tensors
    ) -> tuple[Any, list[Any]]:
        """Return a loss, and its gradients with respect to the chosen ones of the weights' values."""
        loss = in_builtins(lambda values, tensors: loss_of(self.call(values, tensors), tensors))(
            values, tensors
        )
        return loss, tf.gradients(loss, chosen)

    def _summed_gradients(
        self, loss_of: LossOfOutputs, values: list[Any], chosen: list[Any], tensors: Tensors
    ) -> tuple[Any, list[Any]]:
        """Return the same, with the activations of only one micro-batch at a time.

        The outputs of each micro-batch are computed twice: for the loss of the whole batch, which may be any
        function of it, and for their gradients.
        """
        call = in_builtins(self.call)
        parts = np.split(np.arange(self._batch, dtype=np.int32), self._batch // self._micro_batch)
        inputs = {tensor.name: tensors[tensor.name] for tensor in self._model.inputs}
        before = [call(values, _rows(inputs, rows)) for rows in parts]
        outputs = {name: tf.concat([part[name] for part in before], 0) for name in self._outputs}
        loss = in_builtins(loss_of)(outputs, tensors)
        slopes = dict(zip(outputs, tf.gradients(loss, list(outputs.values())), strict=True))
        slopes = {name: slope for name, slope in slopes.items() if slope is not None}
        total: list[Any] = [None] * len(chosen)
        for rows in parts:
            own = call(values, _rows(inputs, rows + _zero_after([loss, *total])))
            own_slopes = _rows(slopes, rows)
            gradients = tf.gradients([own[name] for name in own_slopes], chosen, list(own_slopes.values()))
            total = list(map(_sum_of_known, total, gradients))
        return loss, total

    def call(self, weights: Sequence[Any], inputs: Tensors) -> Tensors:
        """Return the outputs by name."""

        def value(variable: keras.Variable) -> Any:
            at = self._trained.get(id(variable))
            return weights[at] if at is not None else tf.constant(self._constants[id(variable)])

        model = self._model
        ordered = [inputs[tensor.name] for tensor in model.inputs]
        outputs, _ = model.stateless_call(
            list(map(value, model.trainable_variables)),
            list(map(value, model.non_trainable_variables)),
            ordered[0] if len(ordered) == 1 else ordered,
            training=False,
        )
        return dict(zip(self._outputs, tf.nest.flatten(outputs), strict=True))

    def loss(self, outputs: Tensors, tensors: Tensors) -> Any:
        """Return the loss of a step [].

        The distillation loss is the cross entropy. It differs from the divergence in paper 5.1 only by the
        teacher's entropy, which does not depend on the weights.

        Args:
            outputs: Outputs of the batch, by name.
            tensors: Input of `train` -> tensor.
        """
        losses = [
            objective.loss(outputs[name], tensors[target_of(name)])
            + tensors[KD_WEIGHT]
            * objective.distillation(outputs[name], tensors[target_of(name)], tensors[teacher_of(name)], 1.0)
            for name, objective in self.objectives.items()
        ]
        return tf.add_n(losses)

    def _entropy(self, outputs: Tensors, inputs: Tensors) -> Any:
        return tf.add_n(
            [
                mean_entropy(objective, outputs[name])
                for name, objective in self.objectives.items()
                if _has_entropy(objective)
            ]
        )

    def _measured(self, weights: Sequence[Any], tensors: Tensors) -> Tensors:
        outputs = self.call(weights, tensors)
        losses, counts = [], []
        for name, objective in self.objectives.items():
            losses.append(objective.loss(outputs[name], tensors[target_of(name)]))
            counts.append(correct(objective, outputs[name], tensors[target_of(name)]))
        return {
            "loss": tf.add_n(losses),
            "correct": tf.add_n([equal for equal, _ in counts]),
            "counted": tf.add_n([counted for _, counted in counts]),
        }


def convert_training(network: TrainingNetwork) -> bytes:
    """Convert a training network to a `.tflite` with only builtin operators.

    Raises:
        UntrainableError: LiteRT lacks an operation, or the gradient of one.
    """
    try:
        signatures = network.signatures()
        with tempfile.TemporaryDirectory() as directory:
            # LiteRT does not differentiate, so the signatures include the gradients.
            options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
            tf.saved_model.save(network, directory, signatures=signatures, options=options)
            converter = tf.lite.TFLiteConverter.from_saved_model(directory)
            converter.experimental_enable_resource_variables = True
            converted: bytes = converter.convert()
    except (UntrainableError, *RESOURCE_ERRORS):
        raise
    except Exception as error:
        # Conversion and gradients can fail in many ways, and a package is useful without training.
        raise UntrainableError(_first_line(error)) from error
    return converted


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:300]


def _concrete(function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(**{spec.name: spec for spec in specs})


def _rows(tensors: Tensors, rows: Any) -> Tensors:
    """Return some rows of each tensor."""
    return {name: tf.gather(tensor, rows) for name, tensor in tensors.items()}


def _zero_after(tensors: Sequence[Any]) -> Any:
    """Return the integer 0, which depends on tensors: whatever needs it is computed after them.

    Nothing else keeps a micro-batch from being computed beside the one before, as they are independent.
    """
    some = [tf.reshape(tensor, [-1])[0] for tensor in tensors if tensor is not None]
    return tf.minimum(tf.cast(tf.add_n(some) > 0, tf.int32), 0)


def _sum_of_known(one: Any, other: Any) -> Any:
    """Return the sum of two gradients, of which those that do not depend on a weight are None."""
    return other if one is None else one if other is None else one + other


def _has_entropy(objective: OutputObjective) -> bool:
    return isinstance(objective, Categorical | Binary)


def _target_spec(output: Any, objective: OutputObjective, batch: int | None, name: str) -> tf.TensorSpec:
    """Return the shape of an output's targets: the output's shape, without the last axis for classes."""
    shape = tuple(output.shape[1:])
    if isinstance(objective, Categorical):
        return tf.TensorSpec((batch, *shape[:-1]), tf.int32, name)
    return tf.TensorSpec((batch, *shape), tf.int32 if isinstance(objective, Binary) else tf.float32, name)
