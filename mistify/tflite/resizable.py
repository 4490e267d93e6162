"""The parts of a network: graphs for any batch size, and graphs with fixed shapes.

LiteRT's `Interpreter` runs the former; its `CompiledModel`, which supports accelerators, runs the latter.
Both pack the weights of all graphs in a file, even unused ones, so the other part would double the memory. No
graph of one part calls a graph of the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from flatbuffers.number_types import Uint32Flags
from flatbuffers.table import Table

from mistify.package.manifest import FIXED_BATCH

#: Fields of a network in the root table of its file.
_GRAPHS, _SIGNATURES = 8, 18

#: Fields of a signature: its name and the number of its graph.
_KEY, _GRAPH = 8, 12

#: Bytes of a length, of an offset, and of a graph's number.
_WIDTH = 4

#: Offset in a file -> four-byte number.
_Numbers = Mapping[int, int]


@dataclass(frozen=True)
class _Network:
    """The part of a file that lists its graphs and signatures.

    The tables are read directly: importing the classes of the whole format would take longer than loading a
    small network.

    Attributes:
        table: The root table of the file.
        others: Number of signatures for any batch size, which come first.
        fixed: Tables of the signatures with fixed shapes.
    """

    table: Any
    others: int
    fixed: Sequence[Any]

    @classmethod
    def of(cls, network: bytes | mmap) -> "_Network":
        """Parse a file."""
        root = Table(network, 0)
        table = Table(network, root.Indirect(0))
        listed = table.Offset(_SIGNATURES)
        count, first = (table.VectorLen(listed), table.Vector(listed)) if listed else (0, 0)
        signatures = [Table(network, root.Indirect(first + number * _WIDTH)) for number in range(count)]
        fixed = [one for one in signatures if _key_of(one).endswith(FIXED_BATCH.encode())]
        return cls(table, count - len(fixed), fixed)

    @property
    def graphs(self) -> int:
        """The number of graphs for any batch size, which come first."""
        return min(map(_graph_of, self.fixed))


def resizable(network: bytes | mmap) -> bytes:
    """Return a network without its graphs of fixed shapes, if any, which are the last ones in the file.

    Raises:
        ValueError: It is not a network.
    """
    return _part(network, _changes_without_fixed)


def read_resizable(path: Path) -> bytes:
    """Return `resizable` of a file, without reading the other graphs into memory.

    Raises:
        ValueError: It is not a network.
        OSError: It cannot be read.
    """
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as network:
        return resizable(network)


def fixed_shapes(network: bytes | mmap) -> bytes:
    """Return a network without its graphs for any batch size, which are the first ones in the file.

    A network without fixed shapes is returned unchanged.

    Raises:
        ValueError: It is not a network.
    """
    return _part(network, _changes_without_others)


def _part(network: bytes | mmap, numbers_without: Callable[[_Network], _Numbers]) -> bytes:
    try:
        read = _Network.of(network)
        return _changed(network, numbers_without(read)) if read.fixed else bytes(network)
    except Exception as error:  # raised while parsing arbitrary data
        raise ValueError(f"not a network: {error}") from error


def _changes_without_fixed(network: _Network) -> _Numbers:
    """Return the changes to the file that truncate both lists."""
    return {
        _list_at(network.table, _GRAPHS): network.graphs,
        _list_at(network.table, _SIGNATURES): network.others,
    }


def _changes_without_others(network: _Network) -> _Numbers:
    """Return the changes to the file that make both lists start later, and renumber graphs."""
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
    """Return the offset of a list in the file: its length, followed by the offsets of its entries."""
    return int(table.Vector(table.Offset(field))) - _WIDTH


def _list_from(table: Any, field: int, first: int, count: int) -> _Numbers:
    """Return the changes to the file that make a list start at a later entry: its length goes there."""
    refers, begins = table.Pos + table.Offset(field), _list_at(table, field) + first * _WIDTH
    return {refers: begins - refers, begins: count - first}


def _changed(network: bytes | mmap, numbers: _Numbers) -> bytes:
    view, done = memoryview(network), 0
    parts: list[bytes | memoryview] = []
    for place, number in sorted(numbers.items()):
        parts += [view[done:place], number.to_bytes(_WIDTH, "little")]
        done = place + _WIDTH
    return b"".join([*parts, view[done:]])
