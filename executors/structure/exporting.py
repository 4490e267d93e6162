"""Networks as functions of tensors with constant weights, ready to be converted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from executors.structure.empty_means import with_finite_means
from executors.structure.folding import fold_batch_norm
from executors.structure.signature import output_names


@dataclass(frozen=True)
class NamedFunction:
    """A function of tensors with named inputs and outputs.

    Attributes:
        forward: Takes the inputs in order, and returns one output or a list of them.
        inputs: Name, shape and type of each input.
        outputs: The names of the outputs in order.
        variables: The object with the variables that it reads; None if it reads none.
        layers: The names of the layers that it was made from; empty if there are none.
    """

    forward: Callable[..., Any]
    inputs: Sequence[tf.TensorSpec]
    outputs: Sequence[str]
    variables: object = None
    layers: Sequence[str] = ()

    @classmethod
    def like(
        cls, model: keras.Model, forward: Callable[..., Any], variables: object = None
    ) -> "NamedFunction":
        """Return a function with the inputs and outputs of a model.

        Args:
            forward: Takes the inputs in order, and returns one output or a list of them.
            variables: The object with the variables that it reads; None if it reads none.
        """
        inputs = [tf.TensorSpec(tensor.shape, tensor.dtype, tensor.name) for tensor in model.inputs]
        return cls(forward, inputs, output_names(model), variables, [layer.name for layer in model.layers])

    def __call__(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs by name, from the inputs by name."""
        outputs = self.forward(*(inputs[spec.name] for spec in self.inputs))
        return dict(zip(self.outputs, tf.nest.flatten(outputs), strict=True))


def constant(model: keras.Model) -> Callable[..., Any]:
    """Return the function of a model, with its weights as constants.

    The converter would leave variables to be set at run time. The constants become part of the graph that
    calls the function, even of a branch's graph. Masked means without any steps are zero.
    """
    model = with_finite_means(model)
    trained = [variable.numpy() for variable in model.trainable_variables]
    untrained = [variable.numpy() for variable in model.non_trainable_variables]

    def forward(*inputs: tf.Tensor) -> Any:
        weights = [[tf.constant(array) for array in arrays] for arrays in (trained, untrained)]
        tensors = inputs[0] if len(inputs) == 1 else list(inputs)
        return model.stateless_call(*weights, tensors, training=False)[0]

    return forward


def folded(model: keras.Model) -> NamedFunction:
    """Return the function of a model with batch norms folded, with its weights as constants."""
    return NamedFunction.like(model, constant(fold_batch_norm(model)))
