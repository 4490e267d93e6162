"""Optimizers with their state on the device, like the network's weights."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

_MOMENTUM = 0.9
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-7


class Optimizer(tf.Module, ABC):  # type: ignore[misc]  # TensorFlow has no types
    """An optimizer, which updates weights by their gradients.

    Attributes:
        state: The optimizer's variables, initially zero.
    """

    state: list[tf.Variable]

    @abstractmethod
    def apply(self, weights: Sequence[tf.Variable], gradients: Sequence[Any], rate: Any) -> None:
        """Update every weight by its gradient.

        Args:
            weights: The weights, in the order of the state.
            gradients: The gradient of each weight, with its shape.
            rate: The learning rate, [].
        """

    def reset(self) -> None:
        """Set the state to zero."""
        for variable in self.state:
            variable.assign(tf.zeros(variable.shape))


class Momentum(Optimizer):
    """Momentum as in Keras: `m = 0.9 m - rate * g`, `w += m`."""

    def __init__(self, weights: Sequence[tf.Variable]) -> None:
        super().__init__()
        self.state = [_zeros(weight, f"momentum_{at}") for at, weight in enumerate(weights)]

    def apply(self, weights: Sequence[tf.Variable], gradients: Sequence[Any], rate: Any) -> None:
        """Update every weight by its momentum."""
        for weight, gradient, momentum in zip(weights, gradients, self.state, strict=True):
            moved = _MOMENTUM * momentum - rate * gradient
            momentum.assign(moved)
            weight.assign_add(moved)


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015) as in Keras, with its default betas and epsilon."""

    def __init__(self, weights: Sequence[tf.Variable]) -> None:
        super().__init__()
        means = [_zeros(weight, f"mean_{at}") for at, weight in enumerate(weights)]
        squares = [_zeros(weight, f"square_{at}") for at, weight in enumerate(weights)]
        self.state = [tf.Variable(0.0, name="steps"), *means, *squares]

    def apply(self, weights: Sequence[tf.Variable], gradients: Sequence[Any], rate: Any) -> None:
        """Update every weight by the mean of its gradients divided by the root of their mean squares."""
        steps, *moments = self.state
        means, squares = moments[: len(weights)], moments[len(weights) :]
        step = steps + 1.0
        steps.assign(step)
        scale = rate * tf.sqrt(1 - tf.pow(_BETA_2, step)) / (1 - tf.pow(_BETA_1, step))
        for weight, gradient, mean, square in zip(weights, gradients, means, squares, strict=True):
            first = mean + (gradient - mean) * (1 - _BETA_1)
            second = square + (gradient * gradient - square) * (1 - _BETA_2)
            mean.assign(first)
            square.assign(second)
            weight.assign_sub(scale * first / (tf.sqrt(second) + _EPSILON))


#: Name in configs -> optimizer.
OPTIMIZERS: Mapping[str, type[Optimizer]] = {"sgd": Momentum, "adam": Adam}


def _zeros(like: tf.Variable, name: str) -> tf.Variable:
    return tf.Variable(tf.zeros(like.shape), name=name)
