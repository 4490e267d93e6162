"""Quantization-aware training: a network is trained with the roundings of int8."""

from dataclasses import replace
from typing import Any, Final

import keras
import tensorflow as tf
from typing_extensions import override

from executors.compression.kernels import Kernel, kernels
from executors.compression.training import compressing_trainer
from executors.structure import fold_batch_norm
from executors.structure.graph import Graph, Node, TensorRef
from executors.structure.keras_internals import core
from executors.structure.reading.reader import read_graph
from executors.training.evaluation import Tensors
from executors.training.lessons import OutputLesson
from executors.training.setup import TrainingSetup
from executors.training.trainer import cosine

layers = keras.layers

#: Adam's highest rate: a folded network of unscaled inputs has weights of very different sizes.
_LEARNING_RATE: Final = 3e-5

#: The largest integer of a kernel, whose scale is symmetric, and the steps of an activation's range.
_LARGEST: Final = 127
_STEPS: Final = 255

#: Layers that read whole numbers, which have no scale.
_OF_WHOLE_NUMBERS: Final = (layers.Embedding, layers.ReversibleEmbedding, core.Cast)

#: Activations that LiteRT fuses into the operator before them.
_FUSED: Final = (keras.activations.relu, keras.activations.relu6)


def quantization_aware(model: keras.Model, setup: TrainingSetup, steps: int, seed: int) -> keras.Model:
    """Return a copy of a network, batch norm folded, that is trained with the roundings of int8.

    In each step kernels are rounded as LiteRT will store them, and so is what layers write, by its range in
    the batch. What a layer computes inside is not. The copy is converted as for `int8`.

    Args:
        model: The checkpoint, which is not changed.
        setup: The training data, and the teacher's predictions for them.
        steps: Training steps.
        seed: Where the order of the examples starts from.

    Raises:
        FloatingPointError: The loss is no longer finite.
    """
    folded = fold_batch_norm(model)
    network = rounding(folded)
    for layer in network.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.trainable = False  # what could not be folded is packaged with the statistics that it has
    lesson = _RoundedLesson(network, setup, seed)
    trainer = compressing_trainer(network, setup, seed, _LEARNING_RATE, lesson=lesson)
    trainer.train(cosine(steps))
    trainer.settle()
    return folded


def rounding(model: keras.Model) -> keras.Model:
    """Return a network of the same layers that rounds what they write, but for its outputs.

    Args:
        model: A flat one, whose layers are shared.
    """
    graph = read_graph(model)
    return _rounded(graph).build(lambda _, layer: layer, {})


def _rounded(graph: Graph) -> Graph:
    """Return a graph in which calls read tensors that were rounded after they were written."""
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
    """Return whether a tensor is stored in integers of its own range, and read as such."""
    readers = [node.layer for node in graph.consumers.get(tensor, [])]
    if not readers or not graph.dtypes[tensor].startswith("float"):
        return False
    fused = len(readers) == 1 and _is_fused(readers[0])
    # All that is concatenated has the scale of the result.
    joined = all(isinstance(reader, layers.Concatenate) for reader in readers)
    return not (fused or joined or any(isinstance(reader, _OF_WHOLE_NUMBERS) for reader in readers))


def _is_fused(layer: Any) -> bool:
    if isinstance(layer, layers.ReLU):
        return layer.negative_slope == 0 and layer.max_value in (None, 6.0)
    return isinstance(layer, layers.Activation) and layer.activation in _FUSED


class Rounding(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Rounds a tensor to 256 steps between its smallest and its largest value, zero among them.

    Gradients pass as if it did nothing.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.supports_masking = True

    @override
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        lowest = tf.minimum(tf.reduce_min(inputs), 0.0)
        scale = (tf.maximum(tf.reduce_max(inputs), 0.0) - lowest) / _STEPS
        first = tf.round(tf.math.divide_no_nan(lowest, scale))
        return _stepped(inputs, scale, first, first + _STEPS)


def rounded_kernel(kernel: Kernel) -> tf.Tensor:
    """Return the values of a kernel as integers hold them, each channel with a scale of its own."""
    values = tf.convert_to_tensor(kernel.variable)
    scale = tf.reduce_max(tf.abs(values), kernel.shared_axes, keepdims=True) / _LARGEST
    return _stepped(values, scale, -_LARGEST, _LARGEST)


def _stepped(values: tf.Tensor, scale: tf.Tensor, first: Any, last: Any) -> tf.Tensor:
    """Return values at the nearest step between two; gradients pass as if they were not rounded."""
    steps = tf.clip_by_value(tf.round(tf.math.divide_no_nan(values, scale)), first, last)
    return values + tf.stop_gradient(steps * scale - values)


class _RoundedLesson(OutputLesson):
    """Teaches a network by its outputs with rounded kernels."""

    def __init__(self, model: keras.Model, setup: TrainingSetup, seed: int) -> None:
        super().__init__(model, setup, seed)
        self._kernels = list(kernels(model))
        self._states = model.non_trainable_variables

    @override
    def _outputs(self, inputs: Tensors, drawn: Tensors) -> Tensors:
        mapping = [(kernel.variable, rounded_kernel(kernel)) for kernel in self._kernels]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            outputs = super()._outputs(inputs, drawn)
        for state in self._states:
            if (value := scope.get_current_value(state)) is not None:
                state.assign(value)
        return outputs
