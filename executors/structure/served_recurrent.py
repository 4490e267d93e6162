"""Recurrent layers in packages, which multiply the inputs of all steps by their kernel at once.

An unrolled layer of Keras multiplies them step by step: LiteRT would pack the kernel for each step.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

from executors.structure.lstm_memory import LSTMWithMemory

layers = keras.layers

#: Name under which Keras finds these layers in the config of a bidirectional one.
_PACKAGE: Final = "served"


class _Loop:
    """The loop over all steps of a recurrent layer without a mask.

    Subclasses have a method `_step(cell, read, states)`, which returns the states after a step, the output
    first; `read` is the product of the step's input and the kernel [n, gates * units], with the bias.
    """

    def inner_loop(self, sequences: tf.Tensor, initial_state: Any, mask: Any, training: bool = False) -> Any:
        """Return the last output, all outputs or only the last [n, steps, units], and the last state."""
        layer: Any = self
        if mask is not None:
            return super().inner_loop(sequences, initial_state, mask, training)  # type: ignore[misc]
        steps = tf.unstack(_projected(sequences, layer.cell), axis=1)
        states, outputs = list(keras.tree.flatten(initial_state)), []
        for read in reversed(steps) if layer.go_backwards else steps:
            states = layer._step(layer.cell, read, states)
            outputs.append(states[0])
        kept = outputs if layer.return_sequences else outputs[-1:]
        return outputs[-1], tf.stack(kept, axis=1), states


def _projected(sequences: tf.Tensor, cell: Any) -> tf.Tensor:
    """Return the products of all inputs and a cell's kernel, with the bias [n, steps, gates * units]."""
    _, steps, channels = sequences.shape
    made = tf.matmul(tf.reshape(sequences, [-1, channels]), cell.kernel)
    if cell.use_bias:
        made = made + (cell.bias if len(cell.bias.shape) == 1 else cell.bias[0])
    return tf.reshape(made, [-1, steps, made.shape[-1]])


@keras.saving.register_keras_serializable(_PACKAGE)
class _SimpleRNN(_Loop, keras.layers.SimpleRNN):  # type: ignore[misc]  # Keras has no types
    """A simple recurrent layer."""

    def _step(self, cell: Any, read: tf.Tensor, states: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [cell.activation(read + tf.matmul(states[0], cell.recurrent_kernel))]


class _LSTMLoop(_Loop):
    """The loop of an LSTM."""

    def _step(self, cell: Any, read: tf.Tensor, states: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        output, memory = states
        gates = tf.split(read + tf.matmul(output, cell.recurrent_kernel), 4, axis=1)
        written, kept, shown = (cell.recurrent_activation(gates[place]) for place in (0, 1, 3))
        memory = kept * memory + written * cell.activation(gates[2])
        return [shown * cell.activation(memory), memory]


@keras.saving.register_keras_serializable(_PACKAGE)
class _LSTM(_LSTMLoop, keras.layers.LSTM):  # type: ignore[misc]
    """An LSTM."""


@keras.saving.register_keras_serializable(_PACKAGE)
class _LSTMWithMemory(_LSTMLoop, LSTMWithMemory):
    """An LSTM that returns its memory."""


@keras.saving.register_keras_serializable(_PACKAGE)
class _GRU(_Loop, keras.layers.GRU):  # type: ignore[misc]
    """A GRU whose reset is applied after or before the product with its previous output."""

    def _step(self, cell: Any, read: tf.Tensor, states: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        (output,) = states
        of_update, of_reset, of_candidate = tf.split(read, 3, axis=1)
        if cell.reset_after:
            product = tf.matmul(output, cell.recurrent_kernel)
            product = product + cell.bias[1] if cell.use_bias else product
            update, reset, candidate = tf.split(product, 3, axis=1)
            reset = cell.recurrent_activation(of_reset + reset)
            candidate = reset * candidate
        else:
            both, last = tf.split(cell.recurrent_kernel, [2 * cell.units, cell.units], axis=1)
            update, reset = tf.split(tf.matmul(output, both), 2, axis=1)
            reset = cell.recurrent_activation(of_reset + reset)
            candidate = tf.matmul(reset * output, last)
        update = cell.recurrent_activation(of_update + update)
        return [update * output + (1 - update) * cell.activation(of_candidate + candidate)]


_CELLS: Final[Mapping[type, type]] = {
    layers.GRU: _GRU,
    layers.LSTM: _LSTM,
    LSTMWithMemory: _LSTMWithMemory,
    layers.SimpleRNN: _SimpleRNN,
}


class _Bidirectional(keras.layers.Bidirectional):  # type: ignore[misc]
    """Two recurrent layers, of which one runs backwards."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for inner in (self.forward_layer, self.backward_layer):  # which Keras has made from their configs
            inner.__class__ = _CELLS.get(type(inner), type(inner))


#: Recurrent layer -> the same in a package.
SERVED_RECURRENT: Final[Mapping[type, type]] = {**_CELLS, layers.Bidirectional: _Bidirectional}
