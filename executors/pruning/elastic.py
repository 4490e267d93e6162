"""A network with others nested in it: all share its weights, and each has the first units of every group.

Units stand in the order in which the source misses them most. Every few steps another of the networks is
trained, so that one training serves all sizes in between (slimmable networks: Yu and Huang, 2019). Networks
whose sizes are far apart want different weights, so that a range of sizes is divided into segments, and each
segment has a network of its own, which starts from the narrowest of the one before.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt

from executors.pruning.masks import Masks
from executors.pruning.state import PruningState
from executors.structure import Keep, Structure, Widths, narrow
from executors.training.trainer import cosine

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

#: Steps in a row of one of the nested networks.
_STEPS: Final = 2

#: How far beyond the widest and the narrowest network places are drawn, to count as those: they have others
#: on one side only, from which they learn.
_BEYOND: Final = 0.08

#: Parts of what is saved.
_KINDS: Final = ("keep", "order", "sizes", "weights")


@dataclass(frozen=True)
class Segment:
    """A network with others nested in it, from the widest, which is itself, to the narrowest.

    Attributes:
        keep: The source's units that it has, by group.
        order: Of each group, its units [units], the ones that matter most first.
        sizes: Units of each group in networks on the way to the narrowest [networks], equally far apart.
        weights: What is trained of it, by the paths of the variables.
    """

    keep: Keep
    order: Mapping[str, Ids]
    sizes: Mapping[str, Ids]
    weights: Mapping[str, Array]

    @property
    def narrowest(self) -> dict[str, int]:
        """The units of each group in the narrowest network."""
        return self.widths(1.0)

    def widths(self, place: float) -> dict[str, int]:
        """Return the units of each group at a place on the way: 0 is the widest network, 1 the narrowest."""
        return {name: _between(sizes, place) for name, sizes in self.sizes.items()}

    def network(self, source: Structure) -> keras.Model:
        """Return the widest network.

        Args:
            source: The structure of the source.
        """
        model = narrow(source, self.keep)
        for variable in model.trainable_variables:
            variable.assign(self.weights[variable.path])
        return model

    def onward(self) -> tuple[Keep, dict[str, Ids]]:
        """Return the source's units of the narrowest network, and their order."""
        keep, order, widths = {}, {}, self.narrowest
        for name, first in first_units(self.order, widths).items():
            keep[name] = self.keep[name].copy()
            keep[name][np.flatnonzero(keep[name])[~first]] = False
            order[name] = (np.cumsum(first) - 1)[self.order[name][: widths[name]]]
        return keep, order


def _between(sizes: Ids, place: float) -> int:
    """Return a size between others along a geometric scale."""
    return round(float(np.exp(np.interp(place * (len(sizes) - 1), np.arange(len(sizes)), np.log(sizes)))))


def first_units(order: Mapping[str, Ids], widths: Widths) -> dict[str, npt.NDArray[np.bool_]]:
    """Return masks of the first units of each group in an order, as many as are wanted."""
    return {name: np.isin(np.arange(len(units)), units[: widths[name]]) for name, units in order.items()}


class NestedWeights:
    """The weights of a network of which only some units are there at a time.

    Args:
        state: The network with its masks; none of its units is masked.
    """

    def __init__(self, state: PruningState) -> None:
        self._variables = state.trainer.model.trainable_variables
        self._masks: Masks = state.masks
        self._whole = [variable.numpy() for variable in self._variables]

    def show(self, keep: Keep) -> None:
        """Let the network have these units, with their weights as they were trained."""
        self._masks.choose(keep)
        for variable, whole in zip(self._variables, self._whole, strict=True):
            variable.assign(np.where(self._masks.there(variable), whole, 0))

    def store(self) -> None:
        """Take over the weights of the units that are there."""
        for variable, whole, there in zip(
            self._variables, self._whole, map(self._masks.there, self._variables), strict=True
        ):
            np.copyto(whole, variable.numpy(), where=there)

    @property
    def by_path(self) -> dict[str, Array]:
        """The weights of all units."""
        return {v.path: whole for v, whole in zip(self._variables, self._whole, strict=True)}


def train_nested(segment: Segment, state: PruningState, steps: int) -> Segment:
    """Train all networks of a segment together, and return it with their weights.

    Args:
        segment: The segment.
        state: Of its widest network.
        steps: Training steps of all together.
    """
    weights, rng, schedule = NestedWeights(state), np.random.default_rng(state.assignment.seed), cosine(steps)
    for start in range(0, steps, _STEPS):
        place = np.clip(rng.uniform(-_BEYOND, 1 + _BEYOND), 0.0, 1.0)
        weights.show(first_units(segment.order, segment.widths(float(place))))
        state.trainer.train(schedule[start : start + _STEPS])
        weights.store()
    return replace(segment, weights=weights.by_path)


def saved(segments: Iterable[Segment]) -> bytes:
    """Return segments as bytes."""
    arrays: dict[str, Any] = {
        f"{number} {kind} {name}": array
        for number, segment in enumerate(segments)
        for kind in _KINDS
        for name, array in getattr(segment, kind).items()
    }
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def loaded(content: bytes) -> list[Segment]:
    """Return the segments that `saved` was given; none where there is no content."""
    parts: dict[int, dict[str, dict[str, npt.NDArray[Any]]]] = {}
    if content:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            for key in arrays:
                number, kind, name = key.split(" ", 2)
                parts.setdefault(int(number), {}).setdefault(kind, {})[name] = arrays[key]
    return [Segment(**parts[number]) for number in sorted(parts)]
