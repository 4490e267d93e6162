"""The parts of a network: graphs that run batches of any size, and graphs whose shapes are fixed.

LiteRT's `Interpreter` runs the former, and its `CompiledModel`, which reaches accelerators, the latter. Both
pack the weights of all graphs of a file, whichever runs, so that the other part would take as much memory
again. No graph of one part runs one of the other.
"""

from collections.abc import Callable, Mapping, Sequence
from mmap import mmap
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from mistify.package.manifest import FIXED_BATCH

#: The fields of a network in the table that its file begins with.
_GRAPHS, _SIGNATURES = 8, 18

#: The field of a signature that has the number of its graph.
_GRAPH = 12

#: The bytes of a length, of a place, and of the number of a graph.
_WIDTH = 4

#: Four-byte numbers of a file by their places.
_Numbers = Mapping[int, int]


def resizable(network: bytes | mmap) -> bytes:
    """Return a network without its graphs of fixed shapes, which are the last of the file, if it has any.

    Raises:
        ValueError: It is no network.
    """
    return _part(network, _without_fixed)


def fixed_shapes(network: bytes | mmap) -> bytes:
    """Return a network without its graphs for any batch, which are the first of the file.

    A network without fixed shapes is returned unchanged.

    Raises:
        ValueError: It is no network.
    """
    return _part(network, _without_others)


def _part(network: bytes | mmap, numbers_without: Callable[[Any, int, Sequence[Any]], _Numbers]) -> bytes:
    try:
        model = schema.Model.GetRootAs(network, 0)
        signatures = [model.SignatureDefs(number) for number in range(model.SignatureDefsLength())]
        fixed = [one for one in signatures if one.SignatureKey().endswith(FIXED_BATCH.encode())]
        if not fixed:
            return bytes(network)
        return _changed(network, numbers_without(model, len(signatures) - len(fixed), fixed))
    except Exception as error:  # of whatever is read in its place
        raise ValueError(f"no network: {error}") from error


def _without_fixed(model: Any, others: int, fixed: Sequence[Any]) -> _Numbers:
    """Return the changes of the file that make both lists end earlier."""
    graphs = min(one.SubgraphIndex() for one in fixed)
    return {_list_at(model, _GRAPHS): graphs, _list_at(model, _SIGNATURES): others}


def _without_others(model: Any, others: int, fixed: Sequence[Any]) -> _Numbers:
    """Return the changes of the file that make both lists begin later, and renumber graphs."""
    graphs = min(one.SubgraphIndex() for one in fixed)
    return {
        **_list_from(model, _GRAPHS, graphs, model.SubgraphsLength()),
        **_list_from(model, _SIGNATURES, others, others + len(fixed)),
        **{one._tab.Pos + one._tab.Offset(_GRAPH): one.SubgraphIndex() - graphs for one in fixed},
    }


def _list_at(model: Any, field: int) -> int:
    """Return where in the file a list stands: its length, followed by the places of its entries."""
    table = model._tab
    return int(table.Vector(table.Offset(field))) - _WIDTH


def _list_from(model: Any, field: int, first: int, count: int) -> _Numbers:
    """Return the changes of the file that make a list begin with a later entry: its length goes there."""
    refers, begins = model._tab.Pos + model._tab.Offset(field), _list_at(model, field) + first * _WIDTH
    return {refers: begins - refers, begins: count - first}


def _changed(network: bytes | mmap, numbers: _Numbers) -> bytes:
    view, done = memoryview(network), 0
    parts: list[bytes | memoryview] = []
    for place, number in sorted(numbers.items()):
        parts += [view[done:place], number.to_bytes(_WIDTH, "little")]
        done = place + _WIDTH
    return b"".join([*parts, view[done:]])
