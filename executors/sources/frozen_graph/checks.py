"""Graph operations that do not affect results: value checks, messages, and control dependencies on them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

#: Operations without outputs, which other operations reach only through control dependencies.
_SILENT: Final = frozenset({"Assert", "NoOp", "PrintV2"})

#: Operations that return their first input, and the attribute that they share with an identity.
_PASSING: Final = frozenset({"CheckNumerics", "CheckNumericsV2", "Print"})
_TYPE: Final = "T"

#: Prefix of a control input.
_WAITING: Final = "^"


def is_message(node: Any) -> bool:
    """Check whether a node prints a message to a standard stream, and does not write a file."""
    stream = node.attr["output_stream"].s.decode() if node.op == "PrintV2" else ""
    return node.op in ("Print", "PrintV2") and not stream.startswith("file:")


def remove_checks(graph: Any) -> None:
    """Remove operations that do not affect results from a graph and its functions.

    Control dependencies on a removed operation become dependencies on its own predecessors, because it may be
    in one branch of a condition.

    Args:
        graph: A `GraphDef`, changed in place.
    """
    _remove(graph.node)
    for function in graph.library.function:
        _remove(function.node_def)
        kept = {node.name for node in function.node_def}
        for name in [name for name, node in function.control_ret.items() if node not in kept]:
            del function.control_ret[name]
            function.signature.control_output.remove(name)


def _remove(nodes: Any) -> None:
    silent = {node.name: node for node in nodes if node.op in _SILENT}
    kept = [node for node in nodes if node.name not in silent]
    for node in kept:
        inputs = [name for name in node.input if not name.startswith(_WAITING)]
        if node.op in _PASSING:
            node.op, inputs = "Identity", inputs[:1]
            for setting in [name for name in node.attr if name != _TYPE]:
                del node.attr[setting]
        waits = dict.fromkeys(_waits(node.input, silent))
        node.ClearField("input")
        node.input.extend([*inputs, *waits])
    copies = [type(node).FromString(node.SerializeToString()) for node in kept]
    del nodes[:]
    nodes.extend(copies)


def _waits(inputs: Sequence[str], silent: Mapping[str, Any]) -> Iterator[str]:
    """Yield a node's control inputs, with removed operations replaced by their predecessors."""
    for name in inputs:
        if name.startswith(_WAITING):
            waited_for = silent.get(name.removeprefix(_WAITING))
            if waited_for is None:
                yield name
            else:
                yield from _waits(waited_for.input, silent)
