"""The parts of a network: graphs that run batches of any size, and graphs whose shapes are fixed.

LiteRT's `Interpreter` runs the former, and its `CompiledModel`, which reaches accelerators, the latter. Both
pack the weights of all graphs of a file, whichever runs, so that the other part would take as much memory
again. No graph of one part runs one of the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any

from flatbuffers.number_types import Uint32Flags
from flatbuffers.table import Table

from mistify.package.manifest import FIXED_BATCH

#: The fields of a network in the table that its file begins with.
_GRAPHS, _SIGNATURES = 8, 18

#: The fields of a signature that have its name and the number of its graph.
_KEY, _GRAPH = 8, 12

#: The bytes of a length, of a place, and of the number of a graph.
_WIDTH = 4

#: Four-byte numbers of a file by their places.
_Numbers = Mapping[int, int]


@dataclass(frozen=True)
class _Network:
    """The part of a file that says which graphs and signatures there are.

    The tables are read as such: the classes of the whole format take longer to import than a small network to
    load.

    Attributes:
        table: The table that the file begins with.
        others: Number of signatures for any batch, which are the first.
        fixed: Tables of the signatures of fixed shapes.
    """

    table: Any
    others: int
    fixed: Sequence[Any]

    @classmethod
    def of(cls, network: bytes | mmap) -> "_Network":
        """Read a file."""
        root = Table(network, 0)
        table = Table(network, root.Indirect(0))
        listed = table.Offset(_SIGNATURES)
        count, first = (table.VectorLen(listed), table.Vector(listed)) if listed else (0, 0)
        signatures = [Table(network, root.Indirect(first + number * _WIDTH)) for number in range(count)]
        fixed = [one for one in signatures if _key_of(one).endswith(FIXED_BATCH.encode())]
        return cls(table, count - len(fixed), fixed)

    @property
    def graphs(self) -> int:
        """The number of graphs for any batch, which are the first."""
        return min(map(_graph_of, self.fixed))


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


def _part(network: bytes | mmap, numbers_without: Callable[[_Network], _Numbers]) -> bytes:
    try:
        read = _Network.of(network)
        return _changed(network, numbers_without(read)) if read.fixed else bytes(network)
    except Exception as error:  # of whatever is read in its place
        raise ValueError(f"no network: {error}") from error


def _without_fixed(network: _Network) -> _Numbers:
    """Return the changes of the file that make both lists end earlier."""
    return {
        _list_at(network.table, _GRAPHS): network.graphs,
        _list_at(network.table, _SIGNATURES): network.others,
    }


def _without_others(network: _Network) -> _Numbers:
    """Return the changes of the file that make both lists begin later, and renumber graphs."""
    table, graphs, others = network.table, network.graphs, network.others
    return {
        **_list_from(table, _GRAPHS, graphs, table.VectorLen(table.Offset(_GRAPHS))),
        **_list_from(table, _SIGNATURES, others, others + len(network.fixed)),
        **{one.Pos + one.Offset(_GRAPH): _graph_of(one) - graphs for one in network.fixed},
    }


def _key_of(signature: Any) -> bytes:
    return bytes(signature.String(signature.Pos + signature.Offset(_KEY)))


def _graph_of(signature: Any) -> int:
    return int(signature.GetSlot(_GRAPH, 0, Uint32Flags))


def _list_at(table: Any, field: int) -> int:
    """Return where in the file a list stands: its length, followed by the places of its entries."""
    return int(table.Vector(table.Offset(field))) - _WIDTH


def _list_from(table: Any, field: int, first: int, count: int) -> _Numbers:
    """Return the changes of the file that make a list begin with a later entry: its length goes there."""
    refers, begins = table.Pos + table.Offset(field), _list_at(table, field) + first * _WIDTH
    return {refers: begins - refers, begins: count - first}


def _changed(network: bytes | mmap, numbers: _Numbers) -> bytes:
    view, done = memoryview(network), 0
    parts: list[bytes | memoryview] = []
    for place, number in sorted(numbers.items()):
        parts += [view[done:place], number.to_bytes(_WIDTH, "little")]
        done = place + _WIDTH
    return b"".join([*parts, view[done:]])
