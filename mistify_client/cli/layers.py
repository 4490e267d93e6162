"""The command `mistify layers`: the operators of a package, with their costs and errors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from mistify.costs.budget import FLOPS, LATENCY, PARAMS
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.channels import Channels, kept_channels
from mistify.jobs.formatting import amount
from mistify.jobs.network_graph import GraphNode, NetworkGraph, error_growth, worst_nodes
from mistify.parsing.quantities import format_bytes, format_share
from mistify.tables import plain_table
from mistify.tokens import read_token
from mistify.wording import counted
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import ServerOption, TokenFile
from mistify_client.cli.serving import announcing_backoff
from mistify_client.porting.printing import print_line
from mistify_client.rpc.porting import PortingClient

#: The columns in order, and those of texts.
_NUMBER, _LAYER, _OPERATOR, _READS, _OUTPUT, _SIZE = "", "layer", "operator", "of", "output", "size"
_PARAMETERS, _WEIGHTS, _MULTIPLY_ADDS = "parameters", "weights", "multiply-adds"
_CHANNELS, _TIME, _ERROR = "channels", "time", "error"
_COLUMNS: Final = (
    *(_NUMBER, _LAYER, _OPERATOR, _READS, _OUTPUT, _SIZE),
    *(_PARAMETERS, _WEIGHTS, _MULTIPLY_ADDS, _CHANNELS, _TIME, _ERROR),
)
_TEXTS: Final = (_LAYER, _OPERATOR, _READS, _OUTPUT, _WEIGHTS)

#: The columns in order of worth; consoles that are too narrow for all have the first ones.
_WORTH: Final = (
    *(_NUMBER, _LAYER, _ERROR, _MULTIPLY_ADDS, _OPERATOR, _OUTPUT),
    *(_PARAMETERS, _CHANNELS, _WEIGHTS, _READS, _TIME, _SIZE),
)

#: Blanks after each column: its padding and the separator.
_AFTER: Final = 2


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command()(layers)


def layers(
    job: Annotated[str, typer.Argument(metavar="JOB")],
    goal: Annotated[str, typer.Argument(metavar="GOAL")],
    server: ServerOption,
    token_file: TokenFile = None,
) -> None:
    """Show the operators of a goal's package in execution order: sizes, costs, channels, and errors.

    The error of a quantized package's operator is the root mean square difference of its output from that of
    the float32 network, relative to it, over some validation examples. Exit code 3: there is no such goal, or
    its operators are not known.
    """
    console = Console()
    with reported_errors():
        with PortingClient(server, read_token(token_file), backoff=announcing_backoff(server)) as client:
            details = client.details(job, goal)
        if details.graph is None:
            raise MistifyError(
                ErrorCode.NOT_FOUND,
                f'the operators of the goal "{goal}" are not known: it has no package (yet), or one that was '
                "made by an earlier version or has too many operators",
            )
        console.print(operator_table(details.graph, kept_channels(details), console.width))
        for line in error_lines(details.graph):
            print_line(console, line)


def operator_table(graph: NetworkGraph, channels: Mapping[int, Channels], width: int) -> Table:
    """Return a table of the nodes of a network, with the columns that fit a console of this width."""
    rows = [_cells(position, node, channels.get(position)) for position, node in enumerate(graph.nodes)]
    columns = _fitting(rows, width)
    table = plain_table(*columns)
    for column, name in zip(table.columns, columns, strict=True):
        column.justify = "left" if name in _TEXTS else "right"
        column.no_wrap = name != _LAYER
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table


def _fitting(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Return the columns with figures that fit a width, in order; those of numbers and layers always."""
    kept, used = set[str](), 0
    for name in _WORTH:
        cells = [cell_len(row[name]) for row in rows]
        needed = max([cell_len(name), *cells]) + _AFTER
        if any(cells) and (used + needed <= width or name in (_NUMBER, _LAYER)):
            kept.add(name)
            used += needed
    return [name for name in _COLUMNS if name in kept]


def error_lines(graph: NetworkGraph) -> Iterator[str]:
    """Yield a line that names the operators in which the error grows most; none without errors."""
    grown = error_growth(graph)
    worst = worst_nodes(graph)
    named = ", ".join(_growth(position, graph.nodes[position], grown[position]) for position in worst)
    if named:
        yield f"over {counted(graph.examples, 'validation example')}, the error grows most in {named}"


def _growth(position: int, node: GraphNode, growth: float) -> str:
    error = node.error or 0.0
    return (
        f"{position} {node.layer or node.operator} "
        f"({format_share(error - growth, 2)} to {format_share(error, 2)})"
    )


def _cells(position: int, node: GraphNode, channels: Channels | None) -> Mapping[str, str]:
    """Return the cells of a node by column."""
    return {
        _NUMBER: str(position),
        _LAYER: node.layer or "-",
        _OPERATOR: node.operator,
        _READS: ", ".join(map(str, node.inputs)),
        _OUTPUT: f"{'x'.join(map(str, node.shape))} {node.type.lower()}",
        _SIZE: format_bytes(node.output_bytes, 3),
        _PARAMETERS: amount(PARAMS, node.weights) if node.weights else "",
        _WEIGHTS: node.weight_type.lower(),
        _MULTIPLY_ADDS: _work(node.multiply_adds),
        _CHANNELS: "" if channels is None else f"{channels.kept} of {channels.before}",
        _TIME: "" if node.milliseconds is None else amount(LATENCY, node.milliseconds),
        _ERROR: "" if node.error is None else format_share(node.error, 2),
    }


def _work(multiply_adds: int | None) -> str:
    if multiply_adds is None:
        return "?"
    return amount(FLOPS, multiply_adds) if multiply_adds else ""
