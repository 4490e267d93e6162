"""Adaptation of a network's statistics to a stream of examples without labels."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.adaptation.reservoir import Reservoir
from mistify.adaptation.statistics import FoldedNorms, Statistics

__all__ = ["BATCH", "LEAST_SPREAD", "Adapter", "GraphObserver", "spread"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

#: Examples of an update, and the share by which it moves the statistics.
BATCH: Final = 16
_RATE: Final = 0.1

#: Updates that halve the distance to the statistics of a stream, so that the other half is still ahead.
_HALFWAY: Final = 7

#: The predictions whose mean has to be spread over the classes, and its least entropy, as a share of the
#: entropy of all classes alike.
_WINDOW: Final = 100
LEAST_SPREAD: Final = 0.5


@dataclass(frozen=True)
class GraphObserver:
    """A graph of the network and the norms that it contains: of a branch, they are not all.

    Attributes:
        norms: The numbers of its norms, in the order of its operators.
        run: Takes inputs [1, ...] with the factors and summands of its norms; returns the probabilities of
            classes [classes], and the means and mean squares of its norms.
    """

    norms: Sequence[int]
    run: Callable[
        [Mapping[str, Array], Sequence[Floats], Sequence[Floats]],
        tuple[Array, Sequence[Floats], Sequence[Floats]],
    ]


class Adapter:
    """Running statistics of a network's folded batch norms, without gradients.

    An example takes two inferences: one for its prediction, and one for an update.

    Args:
        graphs: The graphs that updates observe in turn.
        classes: The number of classes of predictions.
        statistics: Where to continue; None for the shipped ones.

    Attributes:
        statistics: The running statistics of the examples so far.
    """

    def __init__(
        self,
        norms: FoldedNorms,
        graphs: Sequence[GraphObserver],
        classes: int,
        *,
        statistics: Statistics | None = None,
        seed: int = 0,
    ) -> None:
        self.statistics = statistics or norms.shipped
        self._norms, self._graphs, self._classes = norms, graphs, classes
        self._rng = np.random.default_rng(seed)
        self._turn = 0
        self._recent = deque([self.statistics], maxlen=_HALFWAY + 1)
        self.forget()

    def forget(self) -> None:
        """Forget all examples, but not the statistics."""
        self._reservoir = Reservoir(self._classes)
        self._window: deque[Array] = deque(maxlen=_WINDOW)
        self._pending = 0

    @property
    def shift(self) -> float:
        """How far the statistics have moved, as a multiple of the moves without a shift of the data."""
        return self._norms.shift(self.statistics)

    @property
    def recent_shift(self) -> float:
        """How far the statistics have moved lately: about as far as they still have to, if the stream stays.

        Infinite during the first updates.
        """
        if len(self._recent) <= _HALFWAY:
            return float("inf")
        return self._norms.shift(self.statistics, self._recent[0])

    @property
    def spread(self) -> float:
        """The entropy of the mean of recent predictions, as a share of the largest; 0 without predictions."""
        return spread(self._window) if self._window else 0.0

    def see(self, example: Mapping[str, Array]) -> bool:
        """Add an example of the stream, with the prediction that its statistics so far lead to.

        Args:
            example: Input -> array, without a batch axis.

        Returns:
            False if it is left out: its numbers, or those of its prediction, are not finite.
        """
        if not _finite(example.values()):
            return False
        graph = self._graphs[0]
        one = {name: array[None] for name, array in example.items()}
        prediction = graph.run(one, *_of(graph, self._norms.changes(self.statistics)))[0]
        if not _finite([prediction]):
            return False
        self.add(example, prediction)
        return True

    def add(self, example: Mapping[str, Array], prediction: Array) -> None:
        """Add an example of the stream.

        Args:
            example: Input -> array, without a batch axis.
            prediction: Probabilities of its classes [classes].
        """
        self._window.append(prediction)
        self._reservoir.add(example, int(prediction.argmax()))
        self._pending += 1

    def update(self) -> int:
        """Update the statistics once for every `BATCH` examples added since the last call.

        Nothing is learnt from a stream of few classes, which has other statistics than all of them.

        Returns:
            The number of updates.
        """
        due, self._pending = divmod(self._pending, BATCH) if self._pending > 0 else (0, self._pending)
        if len(self._reservoir) < BATCH or self.spread < LEAST_SPREAD:
            return 0
        for _ in range(due):
            self._learn()
        return due

    def predictions(self, statistics: Statistics, count: int) -> list[Array]:
        """Return the predictions [classes] for examples of the reservoir with the given statistics.

        Their inferences are saved at later updates.
        """
        self._pending -= count
        graph, changes = self._graphs[0], self._norms.changes(statistics)
        rng = np.random.default_rng(0)  # the same examples for all statistics
        return [graph.run(one, *_of(graph, changes))[0] for one in self._reservoir.drawn(count, rng)]

    def _learn(self) -> None:
        graph = self._graphs[self._turn % len(self._graphs)]
        self._turn += 1
        factors, summands = self._norms.changes(self.statistics)
        seen = [
            graph.run(example, *_of(graph, (factors, summands)))[1:]
            for example in self._reservoir.drawn(BATCH, self._rng)
        ]
        means, squares = self._norms.expected(self.statistics)
        for place, norm in enumerate(graph.norms):
            means[norm] = np.mean([of_norms[place] for of_norms, _ in seen], axis=0)
            squares[norm] = np.mean([of_norms[place] for _, of_norms in seen], axis=0)
        self.statistics = self.statistics.towards(self._norms.observed(means, squares), _RATE)
        self._recent.append(self.statistics)


def _of(
    graph: GraphObserver, changes: tuple[Sequence[Floats], Sequence[Floats]]
) -> tuple[list[Floats], list[Floats]]:
    factors, summands = changes
    return [factors[norm] for norm in graph.norms], [summands[norm] for norm in graph.norms]


def _finite(arrays: Iterable[Array]) -> bool:
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")


def spread(predictions: Sequence[Array]) -> float:
    """Return the entropy of the mean of predictions, as a share of the largest entropy.

    Args:
        predictions: Probabilities of classes, each [classes].
    """
    mean = np.mean(predictions, axis=0)
    return float(-(mean * np.log(mean + 1e-9)).sum() / np.log(len(mean)))
