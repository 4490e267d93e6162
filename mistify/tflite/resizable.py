"""The part of a network that runs batches of any size: what LiteRT's `Interpreter` needs of it.

Beside it, packages have graphs with fixed shapes for accelerators. LiteRT packs the weights of all graphs of
a file, whichever runs, so that they would take as much memory once more.
"""

from mmap import mmap
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from mistify.package.manifest import FIXED_BATCH

#: The fields of a network in the table that its file begins with.
_GRAPHS, _SIGNATURES = 8, 18


def resizable(network: bytes | mmap) -> bytes:
    """Return a network without its graphs of fixed shapes, which are the last of the file, if it has any.

    Raises:
        ValueError: it is no network.
    """
    try:
        return _without_fixed(network, schema.Model.GetRootAs(network, 0))
    except Exception as error:  # of whatever is read in its place
        raise ValueError(f"no network: {error}") from error


def _without_fixed(network: bytes | mmap, model: Any) -> bytes:
    signatures = [model.SignatureDefs(number) for number in range(model.SignatureDefsLength())]
    fixed = [one for one in signatures if one.SignatureKey().endswith(FIXED_BATCH.encode())]
    if not fixed:
        return bytes(network)
    graphs = min(one.SubgraphIndex() for one in fixed)
    shorter = {_GRAPHS: graphs, _SIGNATURES: len(signatures) - len(fixed)}
    places = sorted((_place(model, field), count) for field, count in shorter.items())
    view, parts, done = memoryview(network), [], 0
    for place, count in places:
        parts += [view[done:place], count.to_bytes(4, "little")]
        done = place + 4
    return b"".join([*parts, view[done:]])


def _place(model: Any, field: int) -> int:
    """Return where in the file the length of a list stands."""
    table = model._tab
    return int(table.Vector(table.Offset(field))) - 4
