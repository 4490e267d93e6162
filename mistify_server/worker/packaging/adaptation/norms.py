"""The folded batch norms of a model, found again in its `.tflite`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt

from executors.structure import fold_batch_norm
from executors.structure.each_step import applied
from executors.structure.folding import folded_norms
from mistify.tflite.combining import read_network
from mistify.tflite.linear import linear_operator

__all__ = ["LocatedNorm", "located_norms"]

Floats = npt.NDArray[np.float32]

#: Least cosine of a stored kernel with that of a folded layer, as int8 has 127 steps; and the largest
#: relative difference of their biases, which may be float16.
_ALIKE: Final = 0.999
_BIAS_TOLERANCE: Final = 2e-3
_TINY: Final = 1e-30

_TRANSPOSED: Final = (
    keras.layers.Conv1DTranspose,
    keras.layers.Conv2DTranspose,
    keras.layers.Conv3DTranspose,
)

#: Number of the graph and of the operator in it, for each graph with a copy of it.
OperatorPlaces = tuple[tuple[int, int], ...]

#: Graph and operator -> kernel [channels, ...] and bias [channels].
_Stored = Mapping[tuple[int, int], tuple[Floats, Floats]]


@dataclass(frozen=True)
class LocatedNorm:
    """A folded batch norm, and its places in the `.tflite`.

    Attributes:
        name: The layer that it was folded into.
        arrays: The arrays of `ARRAYS` by name, each [channels].
        operators: Number of the graph and of the operator in it, for each place.
    """

    name: str
    arrays: Mapping[str, Floats]
    operators: OperatorPlaces


def located_norms(models: Iterable[keras.Model], network: bytes) -> list[LocatedNorm]:
    """Return the folded batch norms of models that are found in their converted network.

    A norm is missing if the converter merged its layer with others, dropped its bias, or gave its constants
    to several operators.

    Args:
        models: The models of the network, with batch norms: one, or those of its branches, whose shared norms
            are returned once.
        network: Their `.tflite`, in any precision with float activations.
    """
    stored = dict(_stored(network))
    located: dict[OperatorPlaces, LocatedNorm] = {}
    for model in models:
        folded = fold_batch_norm(model)
        for layer, norm in folded_norms(model).items():
            expected = _channels_first(folded.get_layer(layer))
            places = tuple(place for place, values in stored.items() if _alike(values, expected))
            if places and len({graph for graph, _ in places}) == len(places):
                located.setdefault(places, LocatedNorm(layer, _arrays(norm), places))
    return list(located.values())


def _stored(network: bytes) -> Iterator[tuple[tuple[int, int], tuple[Floats, Floats]]]:
    model = read_network(network)
    for number, graph in enumerate(model.subgraphs):
        for place in range(len(graph.operators)):
            operator = linear_operator(model, graph, place)
            if operator is not None:
                yield (number, place), operator.values(model)


def _alike(stored: tuple[Floats, Floats], expected: tuple[Floats, Floats]) -> bool:
    """Return whether a kernel and a bias are the expected ones up to rounding.

    A stored kernel may include a factor by which the network scales its inputs.
    """
    (kernel, bias), (expected_kernel, expected_bias) = stored, expected
    if kernel.size != expected_kernel.size or bias.size != expected_bias.size:
        return False
    norm = np.linalg.norm(expected_bias)
    return bool(
        _cosine(kernel, expected_kernel) >= _ALIKE
        and np.linalg.norm(bias - expected_bias) <= _BIAS_TOLERANCE * norm
    )


def _cosine(one: Floats, other: Floats) -> float:
    a, b = one.ravel().astype(np.float64), other.ravel().astype(np.float64)
    return float(a @ b) / max(float(np.linalg.norm(a) * np.linalg.norm(b)), _TINY)


def _channels_first(layer: Any) -> tuple[Floats, Floats]:
    """Return the kernel [channels, ...] and the bias [channels] of a folded layer."""
    layer = applied(layer)
    separable = isinstance(layer, keras.layers.SeparableConv1D | keras.layers.SeparableConv2D)
    kernel = np.asarray(layer.pointwise_kernel if separable else layer.kernel)
    if isinstance(layer, keras.layers.DepthwiseConv1D | keras.layers.DepthwiseConv2D):
        kernel = kernel.reshape(*kernel.shape[:-2], -1)
    return np.moveaxis(kernel, -2 if isinstance(layer, _TRANSPOSED) else -1, 0), np.asarray(layer.bias)


def _arrays(norm: Any) -> dict[str, Floats]:
    mean = np.asarray(norm.moving_mean)
    return {
        "gamma": np.asarray(norm.gamma) if norm.scale else np.ones_like(mean),
        "beta": np.asarray(norm.beta) if norm.center else np.zeros_like(mean),
        "epsilon": np.full_like(mean, norm.epsilon),
        "mean": mean,
        "variance": np.asarray(norm.moving_variance),
    }
