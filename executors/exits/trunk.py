"""The places in a network at which a head may answer, and the stages between them."""

from collections.abc import Container, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Final

import keras

from executors.structure import analyse, fold_batch_norm, model_of, segments
from executors.structure.graph import Graph

layers = keras.layers

#: Neighbouring layers are joined while together they have at most this share of the network.
_LARGEST: Final = 0.1

#: The share of the multiply-adds that stages before a head have. Earlier heads are rarely right, and later
#: ones save little.
_LEAST_BEFORE: Final = 0.1
_MOST_BEFORE: Final = 0.9

#: The share of the multiply-adds between two positions.
_LEAST_BETWEEN: Final = 0.05

#: The height and width of the pooled features that a head reads.
_POOLED: Final = 4


@dataclass(frozen=True)
class Position:
    """A tensor in a network that all data pass through.

    Attributes:
        name: The layer that makes it.
        segments: Number of segments before it.
        shape: [height, width, channels], or [features].
        multiply_adds: Multiply-adds of the layers before it, for one example.
    """

    name: str
    segments: int
    shape: tuple[int, ...]
    multiply_adds: int


class Trunk:
    """A network, divided at the positions where heads may be added.

    Args:
        model: The network; its batch norms are folded.

    Attributes:
        positions: In the order of the network; may be empty.
        multiply_adds: Multiply-adds of the whole network, for one example.
    """

    def __init__(self, model: keras.Model) -> None:
        structure = analyse(fold_batch_norm(model))
        self._graph = structure.graph
        self._segments = segments(structure, _LARGEST)
        self.multiply_adds = sum(part.multiply_adds for part in self._segments)
        self.positions = tuple(self._positions())

    def pooled(self) -> keras.Model:
        """Return a network of the pooled features [examples, ...] at each position, and of the outputs."""
        ends = [self._segments[position.segments - 1].graph.outputs[0] for position in self.positions]
        tapped = model_of(replace(self._graph, outputs=(*ends, *self._graph.outputs)))
        # Names of their own, because a network may have a layer with the name that Keras would choose.
        taken = [pooled(tensor, f"exit_pool_{at}") for at, tensor in enumerate(tapped.outputs[: len(ends)])]
        named = [layers.Flatten(name=pooled_name(at))(tensor) for at, tensor in enumerate(taken)]
        return keras.Model(tapped.inputs, [*named, *tapped.outputs[len(ends) :]])

    def stages(self, positions: Sequence[Position]) -> list[keras.Model]:
        """Return the networks between the inputs, some positions and the outputs, in order."""
        ends = (0, *(position.segments for position in positions), len(self._segments))
        return [model_of(self._between(first, last)) for first, last in pairwise(ends)]

    def restricted(self, layers: Container[str]) -> "Trunk":
        """Return the same network with only the positions behind some layers."""
        trunk = copy(self)
        trunk.positions = tuple(position for position in self.positions if position.name in layers)
        return trunk

    def _positions(self) -> Iterator[Position]:
        """Yield the positions that differ enough; of close ones, the last, which has the best features."""
        ends = list(accumulate(part.multiply_adds for part in self._segments))
        for at, (before, following) in enumerate(pairwise(ends)):
            part, share = self._segments[at], before / max(1, self.multiply_adds)
            (_, *shape) = self._graph.shapes[part.graph.outputs[0]]
            close = following - before < _LEAST_BETWEEN * self.multiply_adds
            if len(shape) in (1, 3) and not close and _LEAST_BEFORE <= share <= _MOST_BEFORE:
                yield Position(part.name, at + 1, tuple(size or 0 for size in shape), before)

    def _between(self, first: int, last: int) -> Graph:
        parts = [part.graph for part in self._segments[first:last]]
        nodes = tuple(node for part in parts for node in part.nodes)
        return replace(parts[0], name=f"stage_{first}", nodes=nodes, outputs=parts[-1].outputs)


def pooled_name(number: int) -> str:
    """Return the name of the pooled features at a position."""
    return f"exit_pooled_{number}"


def pooled(features: Any, name: str | None = None) -> Any:
    """Return features after adaptive average pooling to four by four; others are returned unchanged.

    Windows of equal size overlap if four does not divide the height or width.

    Args:
        features: A tensor [examples, height, width, channels], or [examples, features].
        name: The name of the layer that pools them; None for one that Keras chooses.
    """
    (_, *shape) = features.shape
    if len(shape) == 1:
        return features
    strides = [max(1, size // _POOLED) for size in shape[:2]]
    kept = [min(size, _POOLED) for size in shape[:2]]
    windows = [size - (count - 1) * stride for size, count, stride in zip(shape, kept, strides, strict=False)]
    return layers.AveragePooling2D(windows, strides, name=name)(features)
