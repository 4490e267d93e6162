"""Repeated entries of axes, as in upsampling to the nearest entry, which LiteRT's converter divides.

It writes an axis of size 1 behind the repeated one (`EXPAND_DIMS`), repeats it (`TILE`), and merges both axes
(`RESHAPE`).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mistify_client.exporting.network import Network, Operator
from mistify_client.exporting.shapes import Shape

#: The operator that takes their place, which LiteRT does not have.
REPEAT: Final = "REPEAT"

_SHAPING: Final = ("EXPAND_DIMS", "RESHAPE")


@dataclass(frozen=True)
class Repetition:
    """The attributes of a `REPEAT`.

    Attributes:
        times: How often each entry of each axis is repeated.
    """

    times: tuple[int, ...]


def with_repetitions(network: Network) -> Network:
    """Return a network with a single operator for the repetition of entries along one or several axes."""
    readers = Counter(number for operator in network.operators for number in operator.inputs)
    readers.update(network.outputs.values())
    makers = {number: operator for operator in network.operators for number in operator.outputs}
    replaced: set[int] = set()
    for last in network.operators:
        parts = _parts(last, makers, readers)
        times = None if parts is None else _times(network, *parts)
        if parts is None or times is None:
            continue
        first = parts[0]
        replaced.update(parts[0].outputs, parts[1].outputs)
        earlier = makers.get(first.inputs[0])
        source = first.inputs[0]
        if earlier is not None and earlier.kind == REPEAT and readers[source] == 1:
            replaced.update(earlier.outputs)
            source = earlier.inputs[0]
            times = tuple(one * other for one, other in zip(times, earlier.options.times, strict=True))
        made = replace(last, kind=REPEAT, inputs=(source,), options=Repetition(times))
        makers[last.outputs[0]] = made
    kept = (makers[one.outputs[0]] for one in network.operators if not replaced.intersection(one.outputs))
    return replace(network, operators=list(kept))


def _parts(
    last: Operator, makers: Mapping[int, Operator], readers: Mapping[int, int]
) -> tuple[Operator, Operator, Operator] | None:
    """Return the three operators that end with this one; None if it does not end such a sequence."""
    tile = makers.get(last.inputs[0]) if last.kind == "RESHAPE" else None
    if tile is None or tile.kind != "TILE" or readers[last.inputs[0]] > 1:
        return None
    first = makers.get(tile.inputs[0])
    fits = first is not None and first.kind in _SHAPING and readers[tile.inputs[0]] == 1
    return (first, tile, last) if first is not None and fits else None


def _times(network: Network, first: Operator, tile: Operator, last: Operator) -> tuple[int, ...] | None:
    """Return how often the entries of each axis are repeated; None if the operators do something else."""
    times = network.constants.get(tile.inputs[1])
    before, single, made = (
        network.shapes[number] for number in (first.inputs[0], tile.inputs[0], last.outputs[0])
    )
    repeated = [] if times is None else [axis for axis, count in enumerate(times) if count != 1]
    if times is None or len(repeated) != 1 or network.types[last.outputs[0]] != "float32":
        return None
    axis, count = repeated[0] - 1, int(times[repeated[0]])
    if axis < 1 or single[axis + 1] != 1 or (*single[: axis + 1], *single[axis + 2 :]) != before:
        return None
    if not _is_longer(made, before, axis, count):
        return None
    return tuple(count if number == axis else 1 for number in range(len(before)))


def _is_longer(made: Shape, before: Shape, axis: int, count: int) -> bool:
    size = before[axis]
    return isinstance(size, int) and made == (*before[:axis], size * count, *before[axis + 1 :])
