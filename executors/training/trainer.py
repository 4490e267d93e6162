"""The common training loop. A `TrainingObjective` defines the loss."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.outputs.objectives import Floats
from executors.structure import trainable_weights
from executors.structure.keras_internals import moments, seed_states
from executors.timing import activity
from executors.training.evaluation import Evaluation, Tensors
from executors.training.flattening import Flattener
from executors.training.objective import Parts, SupervisedObjective, TrainingObjective
from executors.training.optimizers import ADAM, highest_rate, make_optimizer, optimizer_of
from executors.training.setup import TrainingSetup

__all__ = ["Trainer", "constant", "cosine"]

#: Steps per call of the compiled loop.
_CHUNK_STEPS = 50

#: Steps with a learning rate of zero before the first update. Without them, Adam's first updates have the
#: full rate for every weight, however small its gradient, which costs a trained network several points of
#: accuracy.
_PRIMING_STEPS = 10

#: Decay of the weight average per step: a horizon of about fifty steps.
_AVERAGE_DECAY = 0.98

#: Prefix of the names under which the moments of a state are saved.
_MOMENT = "memory"


@dataclass(frozen=True)
class OptimizerState:
    """The state of a trainer apart from the network's weights.

    Attributes:
        optimizer: Name of the optimizer; the moments are only valid for this one.
        steps: Number of updates so far.
        arrays: The optimizer's moments: kind -> weight name -> array of the weight's shape.
        loss: Mean loss of the last call of `train`; None before the first.
    """

    optimizer: str
    steps: int
    arrays: Mapping[str, Mapping[str, Floats]]
    loss: float | None = None

    def flat(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state as arrays by name, without the loss."""
        moments_by_name = {
            f"{_MOMENT} {kind} {path}": moment
            for kind, of_weights in self.arrays.items()
            for path, moment in of_weights.items()
        }
        return {"optimizer": np.array(self.optimizer), "updates": np.array(self.steps), **moments_by_name}

    @classmethod
    def from_flat(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "OptimizerState | None":
        """Return the state from the arrays of `flat`; None if they contain none."""
        if "optimizer" not in arrays:
            return None
        parts: dict[str, dict[str, Floats]] = {}
        for name, array in arrays.items():
            if name.startswith(f"{_MOMENT} "):
                _, kind, path = name.split(" ", 2)
                parts.setdefault(kind, {})[path] = array
        return cls(str(arrays["optimizer"]), int(arrays["updates"]), parts)


def constant(steps: int) -> Floats:
    """Return a constant learning rate, as shares of the highest [steps]."""
    return np.ones(steps, np.float32)


def cosine(steps: int) -> Floats:
    """Return a learning rate that falls from the highest to zero along a cosine, as shares of it [steps]."""
    return (0.5 * (1 + np.cos(np.pi * np.arange(steps) / max(steps, 1)))).astype(np.float32)


class Trainer:
    """Trains one network and evaluates it. The step is traced once and reused by every later call.

    All weights are updated as one vector: dozens of operations per weight would take longer to trace, and in
    small networks to run, than the network itself.

    Args:
        model: A network, changed in place.
        seed: Seed for the order of the examples.
        penalty: Added to the loss at every step; reads only variables.
        after_step: Called after every update, in the same graph.
        optimizer_state: The state of an earlier trainer for these weights, from which to continue.
        objective: None for a `SupervisedObjective`.

    Attributes:
        usual_rate: The highest learning rate from the settings, or else the optimizer's default.
        learning_rate: The highest learning rate; may be changed between calls.
        loss: Mean loss of the last call of `train`, including an earlier trainer's; None before the first.
    """

    def __init__(
        self,
        model: keras.Model,
        setup: TrainingSetup,
        seed: int,
        penalty: Callable[[], tf.Tensor] | None = None,
        after_step: Callable[[], None] | None = None,
        *,
        optimizer_state: OptimizerState | None = None,
        objective: TrainingObjective | None = None,
    ) -> None:
        self.model = model
        self.evaluation = Evaluation(model)
        self._optimizer_name = (
            optimizer_state.optimizer if optimizer_state else optimizer_of(model, setup.params)
        )
        self.usual_rate = highest_rate(self._optimizer_name, setup.params)
        self.learning_rate = self.usual_rate
        self.loss: float | None
        self._objective = objective or SupervisedObjective(model, setup, seed)
        self._batch_size = setup.params.batch_size
        self._penalty = penalty
        self._after_step = after_step
        self._examples = len(setup.train)
        self._flattener = Flattener(model.trainable_variables)
        self._weights = keras.Variable(self._flattener.flatten(model.trainable_variables), name="weights")
        self._average = tf.Variable(self._weights)
        self._averaged = tf.Variable(0.0)
        self._optimizer = make_optimizer(self._optimizer_name, self.usual_rate)
        self._optimizer.build([self._weights])
        self._run = tf.function(self._steps, input_signature=self._signature(), autograph=False)
        self.restart(seed, optimizer_state)

    def restart(self, seed: int, optimizer_state: OptimizerState | None = None) -> None:
        """Continue from the current weights like a new trainer with this seed and state, without a new trace.

        Earlier random draws, losses and optimizer states then have no effect: if all parts of a training run
        begin like this, it ends with the same weights even if it is interrupted between two parts.
        """
        self._batches = _batches(self._examples, self._batch_size, np.random.default_rng(seed))
        self._rng = np.random.default_rng(seed)
        for number, state in enumerate(seed_states(self.model)):
            state.assign([(seed + number) % 2**31, 0])
        for variable in self._optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        self._primed = optimizer_state is not None or self._optimizer_name != ADAM
        self.loss = None
        if optimizer_state is not None:
            self._restore(optimizer_state)
        self.start_average()

    def train(self, schedule: Floats) -> float:
        """Train one step for each entry of the schedule; return the mean loss.

        Raises:
            FloatingPointError: The loss is no longer finite.
        """
        if len(schedule) == 0:
            return 0.0
        if not self._primed:
            self._primed = True
            self.train(np.zeros(_PRIMING_STEPS, np.float32))
        with activity("tracing"):
            self._run.get_concrete_function()
        with activity("training"):
            self.loss = self._train(schedule)
        return self.loss

    def optimizer_state(self) -> OptimizerState:
        """Return the state with which another trainer of all or some of these weights can continue."""
        names = trainable_weights(self.model)
        arrays = {
            kind: self._flattener.by_name(variable.numpy(), names)
            for kind, (variable,) in moments(self._optimizer).items()
        }
        return OptimizerState(self._optimizer_name, int(self._optimizer.iterations), arrays, self.loss)

    def _restore(self, optimizer_state: OptimizerState) -> None:
        self.loss = optimizer_state.loss
        self._optimizer.iterations.assign(optimizer_state.steps)
        names = trainable_weights(self.model)
        for kind, (variable,) in moments(self._optimizer).items():
            arrays = optimizer_state.arrays[kind]
            variable.assign(np.concatenate([np.reshape(arrays[name], -1) for name in names]))

    def _train(self, schedule: Floats) -> float:
        total = 0.0
        for at in range(0, len(schedule), _CHUNK_STEPS):
            rates = schedule[at : at + _CHUNK_STEPS] * np.float32(self.learning_rate)
            indices = np.stack([next(self._batches) for _ in rates])
            chunk = {
                part: {name: tf.constant(array[indices]) for name, array in arrays.items()}
                for part, arrays in self._objective.arrays().items()
            }
            drawn = self._objective.draws(len(rates), self._rng)
            total += float(self._run(chunk, dict(drawn), tf.constant(rates)))
        if not np.isfinite(total):
            raise FloatingPointError(f"the training loss became {total}; try a lower learning_rate")
        return total / len(schedule)

    def start_average(self) -> None:
        """Start a new average of the weights, because earlier weights belong to another network."""
        self._averaged.assign(0.0)
        self._average.assign(self._flattener.flatten(self.model.trainable_variables))

    def apply_average(self) -> None:
        """Set the network's weights to their running average, which is better than the last step's."""
        self._set_weights(self._average)
        if self._after_step is not None:
            self._after_step()

    def _signature(self) -> tuple[Any, ...]:
        """Return the compiled loop's types: rows [steps, batch, ...], draws [steps, ...], rates [steps]."""
        arrays_of_part = {
            part: {
                name: tf.TensorSpec([None, self._batch_size, *array.shape[1:]], array.dtype)
                for name, array in arrays.items()
            }
            for part, arrays in self._objective.arrays().items()
        }
        drawn = {
            name: tf.TensorSpec([None, *array.shape[1:]], array.dtype)
            for name, array in self._objective.draws(1, np.random.default_rng(0)).items()
        }
        return arrays_of_part, drawn, tf.TensorSpec([None], tf.float32)

    def _steps(self, chunk: Parts, drawn: Tensors, rates: tf.Tensor) -> tf.Tensor:
        def body(step: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            parts = {part: {name: rows[step] for name, rows in of.items()} for part, of in chunk.items()}
            draws = {name: values[step] for name, values in drawn.items()}
            return step + 1, total + self._step(parts, draws, rates[step])

        steps = tf.shape(rates)[0]
        return tf.while_loop(lambda step, _: step < steps, body, (0, 0.0), parallel_iterations=1)[1]

    def _step(self, parts: Parts, drawn: Tensors, rate: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = self._objective.loss(parts, drawn, tf.cast(self._optimizer.iterations, tf.int32))
            if self._penalty is not None:
                loss += self._penalty()
        variables = self.model.trainable_variables
        # TensorFlow creates no zero gradients for Keras variables.
        values = [variable.value for variable in variables]
        gradients = tape.gradient(loss, values, unconnected_gradients="zero")
        self._optimizer.learning_rate.assign(rate)
        self._update(self._flattener.flatten(gradients), self._objective.used(drawn))
        self._set_weights(self._weights)
        if self._after_step is not None:
            self._after_step()
        self._take_average(rate)
        return loss

    def _update(self, gradient: tf.Tensor, used: Sequence[tf.Tensor] | None) -> None:
        """Update the weights as one vector; unused weights, and their moments, do not change."""
        self._weights.assign(self._flattener.flatten(self.model.trainable_variables))
        if used is None:
            self._optimizer.apply([gradient], [self._weights])
            return
        changed = [self._weights, *(variable for (variable,) in moments(self._optimizer).values())]
        before = [tf.identity(variable) for variable in changed]
        self._optimizer.apply([gradient], [self._weights])
        uses = self._flattener.repeat(used)
        for variable, value in zip(changed, before, strict=True):
            variable.assign(tf.where(uses, tf.convert_to_tensor(variable), value))

    def _set_weights(self, vector: tf.Tensor) -> None:
        """Set the network's weights from a vector."""
        for variable, value in zip(
            self.model.trainable_variables,
            self._flattener.unflatten(tf.convert_to_tensor(vector)),
            strict=True,
        ):
            variable.assign(value)

    def _take_average(self, rate: tf.Tensor) -> None:
        """Move the average towards the weights; the first average is the weights themselves."""
        self._averaged.assign_add(tf.cast(rate > 0, tf.float32))
        keep = tf.minimum(_AVERAGE_DECAY, 1 - 1 / tf.maximum(self._averaged, 1.0))
        weights = self._flattener.flatten(self.model.trainable_variables)
        self._average.assign(keep * self._average + (1 - keep) * weights)


def _batches(examples: int, size: int, rng: np.random.Generator) -> Iterator[npt.NDArray[np.int64]]:
    """Yield batches of indices [size], each example once per epoch; batches may span two epochs."""
    pending = np.zeros(0, np.int64)
    while True:
        while len(pending) < size:
            pending = np.concatenate([pending, rng.permutation(examples)])
        yield pending[:size]
        pending = pending[size:]
