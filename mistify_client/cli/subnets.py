"""The commands for subnets: `mistify adapt` and `mistify subnets`."""

import json
import resource
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mistify.errors import ErrorCode, MistifyError, invalid_config
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind, option_id
from mistify.parsing.quantities import Quantity, format_time, parse_time
from mistify.parsing.validation import InvalidValue
from mistify.tables import plain_table
from mistify_client.assembly.pool import PoolEntry, SubnetPool
from mistify_client.assembly.shipped import blocks_of, with_shipped
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import PackageOption, ThreadsOption
from mistify_client.porting.printing import print_line
from mistify_client.runtime.trust import require_trusted
from mistify_client.runtime.versions import open_current, state_directory
from mistify_client.subnets.search.strategies import Strategy
from mistify_client.subnets.search_session import AdaptationResult, adapt
from mistify_client.subnets.space import SubnetSpace

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    app.command(name="adapt")(adapt_package)
    app.command(name="subnets")(list_subnets)


def adapt_package(
    package: PackageOption,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help=".npz file with arrays named like the inputs, and like the outputs if there are labels.",
        ),
    ],
    latency: Annotated[
        str, typer.Option(metavar="TIME", help='Such as "3ms", or "0.6x" of the original network\'s.')
    ],
    *,
    strategy: Annotated[Strategy, typer.Option(help="Search strategy for subnets.")] = Strategy.ADDITIVE,
    threads: ThreadsOption = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the server's access token. "
            "Default: the token file with which the package was downloaded to this device."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the most accurate subnet of a package on this device's data within a latency.

    The blocks are measured on this device, and subnets evaluated on the data, which never leave it. Without
    labels, the predictions of the original network count as correct. The chosen subnet has the highest score,
    accuracy minus half of the loss, among those within the latency that are as accurate as all faster ones.
    The other best subnets are kept in a pool. Blocks that the package was downloaded without are downloaded
    if they may be useful. If anything fails, the previous network keeps running. Exit code 2: no subnet is
    fast enough; 4: another process is adapting the package, or it was tuned.
    """
    with reported_errors():
        require_trusted(package)
        began = time.perf_counter()
        on_progress = partial(print_line, Console(stderr=True))
        result = adapt(
            package,
            data,
            _latency(latency),
            strategy,
            threads=threads,
            token_file=token_file,
            on_progress=on_progress,
        )
        seconds = time.perf_counter() - began
        if as_json:
            typer.echo(json.dumps(_as_json(result, seconds), indent=2))
            return
        print_line(Console(), _summary(result))
        Console().print(_table(result.pool, result.package))


def list_subnets(package: PackageOption, *, as_json: JsonOption = False) -> None:
    """List the subnets in a package's pool, the fastest first, and the blocks that they replace.

    Subnets are ranked by score, accuracy minus half of the loss: each has a higher score than all faster
    ones, and is at least as accurate. Exit code 3: the package was never adapted on this device.
    """
    with reported_errors():
        opened = open_current(package)
        blocks_of(opened)  # a package without blocks cannot be adapted
        pool = SubnetPool.load(state_directory(package), opened)
        if pool is None:
            message = f"{package} has no pool of subnets; make one with mistify adapt"
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        if as_json:
            typer.echo(json.dumps(pool.model_dump(mode="json"), indent=2))
            return
        Console().print(_table(pool, opened))


def _latency(text: str) -> Quantity:
    try:
        return parse_time(text)
    except InvalidValue as error:
        raise invalid_config([error.problem("--latency")], "the command line") from error


def _summary(result: AdaptationResult) -> str:
    pool, chosen, original = result.pool, result.chosen, result.original
    return (
        f"chosen: {format_time(chosen.latency_ms, 3)} of at most {format_time(pool.budget_ms, 3)}, "
        f"{pool.metric} {pool.metric.shown(chosen.accuracy)}, score {_figure(chosen.score)}; the original "
        f"network: {format_time(original.latency_ms, 3)}, {pool.metric.shown(original.accuracy)}, score "
        f"{_figure(original.score)}"
    )


def _as_json(result: AdaptationResult, seconds: float) -> dict[str, Any]:
    return {
        "chosen": result.chosen.model_dump(mode="json"),
        "original": result.original.model_dump(mode="json"),
        "pool": result.pool.model_dump(mode="json"),
        "scored": result.scored,
        "block_runs": result.runs,
        "block_runs_saved": result.saved,
        "seconds": seconds,
        "peak_bytes": _peak_bytes(),
    }


def _peak_bytes() -> int:
    """Return the peak memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _table(pool: SubnetPool, package: Package) -> Table:
    """Return a table of a pool that marks the best subnet within the budget, unless others run.

    Subnets are ranked by their scores, the last figures.

    Args:
        package: The package's version.
    """
    space = SubnetSpace(with_shipped(blocks_of(package), package))
    accuracy, replaced = str(pool.metric), "replacement blocks"
    table = plain_table("", "option", "latency", "relative", accuracy, "loss", "score", replaced)
    best = None if package.manifest.tuned_from else pool.best()
    for number, entry in enumerate(pool.entries):
        table.add_row(
            "*" if entry == best else "",
            option_id(OptionKind.SUBNET, number),
            format_time(entry.latency_ms, 3),
            f"{entry.latency_ms / pool.original_ms:.2f}x",
            pool.metric.shown(entry.accuracy),
            _figure(entry.loss),
            _figure(entry.score),
            ", ".join(_replacing(entry, space)),
        )
    return table


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _replacing(entry: PoolEntry, space: SubnetSpace) -> Iterator[str]:
    """Yield the names of the blocks that are not in the original network."""
    if entry.files == (NETWORK,):
        yield "the network as it was shipped, in one file"
        return
    original = {block.file for block in space.original}
    yield from (file.removesuffix(".tflite") for file in entry.files if file not in original)
