"""Quantization-aware training: training with int8 rounding.

The rounding is that of TensorFlow Model Optimization. Its wrappers are not used: they are made for Keras 2,
and support neither all layers nor all kernels.
"""

from dataclasses import replace
from functools import cache
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf
from typing_extensions import override

from executors.compression.kernels import Kernel, kernels
from executors.compression.training import compressing_trainer
from executors.structure import fold_batch_norm
from executors.structure.graph import Graph, Node, TensorRef
from executors.structure.keras_internals import core
from executors.structure.reading.reader import read_graph
from executors.training.evaluation import Tensors
from executors.training.objective import SupervisedObjective
from executors.training.setup import TrainingSetup
from executors.training.trainer import cosine

layers = keras.layers

#: Adam's highest learning rate: a folded network with unscaled inputs has weights of very different
#: magnitudes.
_LEARNING_RATE: Final = 3e-5

_BITS: Final = 8

#: Layers that read integers, which have no scale.
_INTEGER_LAYERS: Final = (layers.Embedding, layers.ReversibleEmbedding, core.Cast)

#: Activations that LiteRT fuses into the operator before them.
_FUSED: Final = (keras.activations.relu, keras.activations.relu6)


def quantization_aware(model: keras.Model, setup: TrainingSetup, steps: int, seed: int) -> keras.Model:
    """Return a copy of a network with folded batch norms that is trained with int8 rounding.

    In each step, kernels are rounded as LiteRT will store them, and layer outputs by their range in the
    batch. Values inside a layer are not rounded. The copy is converted as for `int8`.

    Args:
        model: A checkpoint, which is not changed.
        setup: The training data, and the teacher's predictions for them.
        steps: Number of training steps.
        seed: Seed for the order of the examples.

    Raises:
        FloatingPointError: The loss is no longer finite.
    """
    folded = fold_batch_norm(model)
    network = rounding(folded)
    for layer in network.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.trainable = False  # an unfolded batch norm is packaged with its current statistics
    objective = _RoundedObjective(network, setup, seed)
    trainer = compressing_trainer(network, setup, seed, _LEARNING_RATE, objective=objective)
    trainer.train(cosine(steps))
    trainer.apply_average()
    return folded


def rounding(model: keras.Model) -> keras.Model:
    """Return a network with the same layers that rounds their outputs, except for the network's outputs.

    Args:
        model: A flat model, which shares its layers with the result.
    """
    graph = read_graph(model)
    return _rounded(graph).build(lambda _, layer: layer, {})


def _rounded(graph: Graph) -> Graph:
    """Return a graph with a rounding after each tensor that int8 stores rounded."""
    shapes, dtypes = list(graph.shapes), list(graph.dtypes)
    roundings: dict[int, Node] = {}
    for tensor in (*graph.inputs, *(node.output for node in graph.nodes)):
        if _is_rounded(graph, tensor):
            name = f"rounding_{tensor}"
            made = Node(name, Rounding(name=name), (TensorRef(tensor),), {}, (tensor,), len(shapes))
            roundings[tensor] = made
            shapes.append(shapes[tensor])
            dtypes.append(dtypes[tensor])

    def rounded(tensor: int) -> int:
        return roundings[tensor].output if tensor in roundings else tensor

    nodes = [roundings[tensor] for tensor in graph.inputs if tensor in roundings]
    for node in graph.nodes:
        nodes.append(replace(node.rewired(rounded), output=node.output))
        nodes.extend(filter(None, [roundings.get(node.output)]))
    return replace(graph, shapes=tuple(shapes), dtypes=tuple(dtypes), nodes=tuple(nodes))


def _is_rounded(graph: Graph, tensor: int) -> bool:
    """Return whether int8 stores a tensor with a scale from the tensor's own range."""
    readers = [node.layer for node in graph.consumers.get(tensor, [])]
    if not readers or not graph.dtypes[tensor].startswith("float"):
        return False
    fused = len(readers) == 1 and _is_fused(readers[0])
    # All inputs of a concatenation have the scale of its result.
    joined = all(isinstance(reader, layers.Concatenate) for reader in readers)
    return not (fused or joined or any(isinstance(reader, _INTEGER_LAYERS) for reader in readers))


def _is_fused(layer: Any) -> bool:
    if isinstance(layer, layers.ReLU):
        return layer.negative_slope == 0 and layer.max_value in (None, 6.0)
    return isinstance(layer, layers.Activation) and layer.activation in _FUSED


class Rounding(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Rounds a tensor to 256 levels between its smallest and its largest value, including zero.

    Gradients pass through within the range.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.supports_masking = True
        self._range = _range(())

    @override
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return _quantizer(of_kernels=False)(inputs, True, self._range)


class RoundedKernel:
    """The values of a kernel after int8 rounding, with one scale per channel.

    Args:
        kernel: A kernel, which is not changed.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.variable = kernel.variable
        self._order = [*kernel.shared_axes, *kernel.channel_axes]
        self._channels = int(np.prod([kernel.variable.shape[axis] for axis in kernel.channel_axes]))
        self._range = _range((self._channels,))

    def values(self) -> tf.Tensor:
        """Return the current values, of the kernel's shape."""
        ordered = tf.transpose(tf.convert_to_tensor(self.variable), self._order)
        by_channel = tf.reshape(ordered, [-1, self._channels])
        rounded = _quantizer(of_kernels=True)(by_channel, True, self._range)
        return tf.transpose(tf.reshape(rounded, ordered.shape), np.argsort(self._order))


@cache
def _quantizer(*, of_kernels: bool) -> Any:
    """Return a quantizer with a range per channel of a kernel, or per tensor."""
    from tensorflow_model_optimization.quantization.keras import quantizers  # noqa: PLC0415 (takes seconds)

    return quantizers.LastValueQuantizer(
        _BITS, per_axis=of_kernels, symmetric=of_kernels, narrow_range=of_kernels
    )


def _range(shape: tuple[int, ...]) -> dict[str, tf.Variable]:
    """Return the variables in which a quantizer keeps the limits of the last range."""
    return {name: tf.Variable(tf.zeros(shape), trainable=False) for name in ("min_var", "max_var")}


class _RoundedObjective(SupervisedObjective):
    """Supervised training of a network with rounded kernels."""

    def __init__(self, model: keras.Model, setup: TrainingSetup, seed: int) -> None:
        super().__init__(model, setup, seed)
        self._kernels = [RoundedKernel(kernel) for kernel in kernels(model)]
        self._states = model.non_trainable_variables

    @override
    def _outputs(self, inputs: Tensors, drawn: Tensors) -> Tensors:
        mapping = [(kernel.variable, kernel.values()) for kernel in self._kernels]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            outputs = super()._outputs(inputs, drawn)
        for state in self._states:
            if (value := scope.get_current_value(state)) is not None:
                state.assign(value)
        return outputs
