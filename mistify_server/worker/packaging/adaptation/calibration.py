"""The moves of statistics that the classes of the data cause by themselves, without any shift.

A stream of a single class has other statistics than all data. Devices adapt a network only if its statistics
move farther than that.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.adaptation.adapter import BATCH, Adapter
from mistify.adaptation.observing import graph_observers
from mistify.adaptation.statistics import FoldedNorms
from mistify.package.training import OutputEncoding

__all__ = ["single_class_streams", "usual_moves"]

Array = npt.NDArray[Any]

#: Length of a stream in examples, after which running statistics have moved by nine tenths; and the largest
#: number of different ones, which take memory.
_LENGTH: Final = 20 * BATCH
_DIFFERENT: Final = 5 * BATCH

#: The number of classes, those with the most examples, and the examples that each has at least.
_MOST_CLASSES: Final = 10
LEAST_EXAMPLES: Final = 2 * BATCH

#: Predictions of this many classes in turn fill a reservoir with any stream.
_PRETENDED: Final = 4

#: Moves that every norm may make, because a few examples say little.
_LEAST_MOVE: Final = 0.02


def single_class_streams(classes: Array) -> list[Array]:
    """Return the rows of each class; none if fewer than two classes have enough examples.

    Args:
        classes: The class of each example [n]; those below 0 are unknown.
    """
    numbers, counts = np.unique(classes[classes >= 0], return_counts=True)
    frequent = numbers[np.argsort(-counts, kind="stable")][:_MOST_CLASSES]
    rows = [np.flatnonzero(classes == number) for number in frequent]
    rows = [each[:_DIFFERENT] for each in rows if len(each) >= LEAST_EXAMPLES]
    return rows if len(rows) > 1 else []


def usual_moves(
    networks: Sequence[tuple[Sequence[int], bytes]],
    norms: FoldedNorms,
    output: str,
    kind: OutputEncoding,
    examples: Mapping[str, Array],
) -> Array:
    """Return the farthest moves of the statistics under a stream.

    Runs in LiteRT's process.

    Args:
        networks: The norms and the observed network of each graph.
        norms: The norms; their own usual moves do not matter.
        output: The output with the classes.
        kind: The form of its values, such as logits.
        examples: Input -> examples [n, ...] of one class, which the stream repeats.

    Returns:
        An array like that of `FoldedNorms.moves`.
    """
    adapter = Adapter(norms, graph_observers(networks, output, kind), _PRETENDED)
    predictions = np.eye(_PRETENDED, dtype=np.float32)
    moves = [np.full(2 * len(norms.sizes), _LEAST_MOVE, np.float32)]
    for number in range(_LENGTH):
        example = {name: array[number % len(array)] for name, array in examples.items()}
        adapter.add(example, predictions[number % _PRETENDED])
        if adapter.update():
            moves.append(norms.moves(adapter.statistics))
    farthest: Array = np.max(moves, axis=0)
    return farthest
