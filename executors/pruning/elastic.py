"""A network with nested subnetworks: they share its weights, and each has the first units of every group.

Units are ordered by their importance to the source, most important first. Training switches to another of the
networks every few steps, so that one training run covers all sizes in between (slimmable networks: Yu and
Huang, 2019). Networks of very different sizes need different weights, so the range of sizes is divided into
segments. Each segment has its own network, which starts from the narrowest network of the previous segment.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.pruning.masks import Masks
from executors.pruning.state import PruningState
from executors.structure import Keep, Structure, Widths, narrow, trainable_weights
from executors.training.trainer import OptimizerState, cosine

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

#: Consecutive steps for one nested network, and steps between progress reports.
_STEPS: Final = 2
_REPORT_STEPS: Final = 50

#: Parts of the training, after each of which it can be resumed.
_PARTS: Final = 8

#: How far beyond the widest and the narrowest network positions are drawn; they are then clipped to these
#: two. The two networks would otherwise be trained less, because they have neighbours on only one side.
_BEYOND: Final = 0.08

#: The parts of a segment that are saved.
_KINDS: Final = ("keep", "order", "sizes", "weights")


@dataclass(frozen=True)
class NestedSegment:
    """A network and its nested networks, from the widest (itself) to the narrowest.

    Attributes:
        keep: The source's units in this segment, by group.
        order: Group -> indices of its units [units], the most important first.
        sizes: Group -> number of units in each network from the widest to the narrowest [networks], equally
            spaced.
        weights: Weight name -> array.
    """

    keep: Keep
    order: Mapping[str, Ids]
    sizes: Mapping[str, Ids]
    weights: Mapping[str, Array]

    @property
    def narrowest(self) -> dict[str, int]:
        """The number of units of each group in the narrowest network."""
        return self.widths(1.0)

    def widths(self, place: float) -> dict[str, int]:
        """Return each group's number of units at a position: 0 is the widest network, 1 the narrowest."""
        return {name: _between(sizes, place) for name, sizes in self.sizes.items()}

    def network(self, source: Structure) -> keras.Model:
        """Return the widest network."""
        model = narrow(source, self.keep)
        for name, variable in trainable_weights(model).items():
            variable.assign(self.weights[name])
        return model

    def onward(self) -> tuple[Keep, dict[str, Ids]]:
        """Return the source's units that the narrowest network keeps, and their order."""
        keep, order, widths = {}, {}, self.narrowest
        for name, first in first_units(self.order, widths).items():
            keep[name] = self.keep[name].copy()
            keep[name][np.flatnonzero(keep[name])[~first]] = False
            order[name] = (np.cumsum(first) - 1)[self.order[name][: widths[name]]]
        return keep, order


def _between(sizes: Ids, place: float) -> int:
    """Interpolate between sizes on a geometric scale."""
    return round(float(np.exp(np.interp(place * (len(sizes) - 1), np.arange(len(sizes)), np.log(sizes)))))


def first_units(order: Mapping[str, Ids], widths: Widths) -> dict[str, npt.NDArray[np.bool_]]:
    """Return masks of the first units of each group, for the given widths and order."""
    return {name: np.isin(np.arange(len(units)), units[: widths[name]]) for name, units in order.items()}


class NestedWeights:
    """The full weights of a network that shows only some of its units at a time.

    Args:
        state: The network, with masks that mask no unit.

    Attributes:
        store: Saves the weights of the shown units.
    """

    def __init__(self, state: PruningState) -> None:
        self._named = trainable_weights(state.trainer.model)
        self._variables = list(self._named.values())
        self._masks: Masks = state.masks
        self._whole = [tf.Variable(variable, trainable=False) for variable in self._variables]
        # Each is a single traced call, because they run every few steps.
        self._show = tf.function(self._masked, autograph=False)
        self.store = tf.function(self._stored, autograph=False)

    def show(self, keep: Keep) -> None:
        """Show these units in the network, with their trained weights."""
        self._masks.choose(keep)
        self._show()

    @property
    def by_name(self) -> dict[str, Array]:
        """The weights of all units."""
        return {name: whole.numpy() for name, whole in zip(self._named, self._whole, strict=True)}

    def _masked(self) -> None:
        for variable, whole in zip(self._variables, self._whole, strict=True):
            variable.assign(whole * self._masks.left(variable))

    def _stored(self) -> None:
        for variable, whole in zip(self._variables, self._whole, strict=True):
            whole.assign(tf.where(self._masks.left(variable) > 0, tf.convert_to_tensor(variable), whole))


class SegmentNetwork(NamedTuple):
    """A segment's widest network, which shows one nested network at a time.

    Attributes:
        state: The network with its masks and its trainer.
        weights: The weights of all units.
    """

    state: PruningState
    weights: NestedWeights

    @classmethod
    def of(cls, state: PruningState) -> Self:
        """Return the network of a state without masked units."""
        return cls(state, NestedWeights(state))


class PreparedSegments:
    """The segments of a preparation, and their networks: compiled functions serve all goals.

    Attributes:
        segments: The segments, from the widest to the narrowest.
        networks: Index of a segment -> its network, for segments that were needed so far.
    """

    def __init__(self) -> None:
        self.segments: list[NestedSegment] = []
        self.networks: dict[int, SegmentNetwork] = {}
        self._content = b""

    def load(self, content: bytes) -> None:
        """Load segments serialized by `saved`, unless they are loaded already."""
        if content != self._content:
            self.segments, self.networks, self._content = loaded(content), {}, content


@dataclass(frozen=True)
class SegmentTraining:
    """The training of a segment, with its progress.

    Attributes:
        segment: The segment with its current weights.
        steps: Number of training steps so far.
        optimizer_state: The trainer's state apart from the weights; None before the first step.
    """

    segment: NestedSegment
    steps: int = 0
    optimizer_state: OptimizerState | None = None

    def saved(self) -> bytes:
        """Return the training, serialized."""
        arrays = _arrays_of("segment", self.segment) | {"steps": np.array(self.steps)}
        return _written(arrays | (self.optimizer_state.flat() if self.optimizer_state else {}))

    @classmethod
    def loaded(cls, content: bytes) -> Self:
        """Load a training saved by `saved`."""
        arrays = _read(content)
        own = {name: array for name, array in arrays.items() if name.startswith("segment ")}
        segment = _segment_of(_parted(own)["segment"])
        return cls(segment, int(arrays["steps"]), OptimizerState.from_flat(arrays))


def train_nested(
    training: SegmentTraining,
    state: PruningState,
    steps: int,
    report: Callable[[int, float], None],
    keep: Callable[[SegmentTraining], None],
) -> NestedSegment:
    """Train all networks of a segment together, and return the segment with its weights.

    Each part begins as after an interruption, so that both cases end with the same weights.

    Args:
        state: The state of the segment's widest network, with the current weights.
        steps: Total number of training steps for all networks.
        report: Called regularly with the number of steps, and the mean training loss since the last report.
        keep: Called with the training after each part of it.
    """
    weights, schedule, segment = NestedWeights(state), cosine(steps), training.segment
    optimizer_state, part = training.optimizer_state, -(-steps // _PARTS)
    for first in range(training.steps, steps, part):
        end = min(first + part, steps)
        rng, losses = np.random.default_rng([state.assignment.seed, first]), []
        state.trainer.restart(state.assignment.seed + first // part, optimizer_state)
        for step in range(first, end, _STEPS):
            place = np.clip(rng.uniform(-_BEYOND, 1 + _BEYOND), 0.0, 1.0)
            weights.show(first_units(segment.order, segment.widths(float(place))))
            after = min(step + _STEPS, end)
            losses.append(state.trainer.train(schedule[step:after]))
            weights.store()
            if len(losses) * _STEPS >= _REPORT_STEPS and after < end:
                report(after, float(np.mean(losses)))
                losses.clear()
        segment = replace(segment, weights=weights.by_name)
        optimizer_state = state.trainer.optimizer_state()
        keep(SegmentTraining(segment, end, optimizer_state))
        report(end, float(np.mean(losses)))
    return segment


def saved(segments: Iterable[NestedSegment]) -> bytes:
    """Return segments, serialized."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for number, segment in enumerate(segments):
        arrays |= _arrays_of(str(number), segment)
    return _written(arrays)


def loaded(content: bytes) -> list[NestedSegment]:
    """Load the segments that `saved` serialized; none for empty content."""
    parts = _parted(_read(content)) if content else {}
    return [_segment_of(parts[number]) for number in sorted(parts, key=int)]


def _segment_of(part: Mapping[str, Mapping[str, npt.NDArray[Any]]]) -> NestedSegment:
    """Return a segment from its arrays; one without groups only has weights."""
    return NestedSegment(**{kind: part.get(kind, {}) for kind in _KINDS})


def _arrays_of(name: str, segment: NestedSegment) -> dict[str, npt.NDArray[Any]]:
    return {f"{name} {kind} {key}": array for kind in _KINDS for key, array in getattr(segment, kind).items()}


def _parted(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, dict[str, dict[str, npt.NDArray[Any]]]]:
    """Return arrays by the parts of their names; the last part may contain spaces."""
    parts: dict[str, dict[str, dict[str, npt.NDArray[Any]]]] = {}
    for key, array in arrays.items():
        name, kind, of = key.split(" ", 2)
        parts.setdefault(name, {}).setdefault(kind, {})[of] = array
    return parts


def _written(arrays: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _read(content: bytes) -> dict[str, npt.NDArray[Any]]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)
