"""The command of engines: `mistify engines`."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from mistify.errors import invalid_config
from mistify.machine import MOST_THREADS
from mistify.parsing.quantities import format_bytes, format_time
from mistify.parsing.validation import InvalidValue
from mistify.tables import plain_table
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import PackageOption
from mistify_client.engines.measuring import SECONDS
from mistify_client.engines.offering import Offer, offer_engines
from mistify_client.runtime.trust import require_trusted

_DIGITS = 3

_HELP = (
    "Numbers of threads to try, such as 1,2,4. Default: 1, 2, 4 and so on, up to those of the device. "
    "Subnets have that of mistify adapt."
)


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command(name="engines")(measure_engines)


def measure_engines(
    package: PackageOption,
    *,
    threads: Annotated[str | None, typer.Option(metavar="NUMBERS", help=_HELP)] = None,
    seconds: Annotated[float, typer.Option(min=1e-3, help="Measuring time per engine.")] = SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure ways to run a package on this device, and make the best ones its options.

    They differ in the interface of LiteRT, the number of threads, and in whether all processes share the
    packed weights. The package's own engine runs until a monitor or an app switches to another one. Subnets
    that mistify adapt has found are measured one by one. Exit code 3: the package has branches, exits or
    slices; 4: another process measures it.
    """
    with reported_errors():
        require_trusted(package)
        offers = offer_engines(package, _counts(threads), seconds)
        if as_json:
            typer.echo(json.dumps(_as_json(offers), indent=2))
        else:
            Console().print(_table(offers))


def _counts(text: str | None) -> list[int] | None:
    """Return the numbers of threads in a comma-separated text; None without a text.

    Raises:
        MistifyError: INVALID_CONFIG, they are not.
    """
    if text is None:
        return None
    counts = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(counts) != len(text.split(",")) or not all(1 <= count <= MOST_THREADS for count in counts):
        error = InvalidValue(text, f"numbers from 1 to {MOST_THREADS}", 'separate them by commas: "1,2"')
        raise invalid_config([error.problem("--threads")], "the command line")
    return counts


def _as_json(offers: Sequence[Offer]) -> dict[str, Any]:
    return {"engines": [{**one.model_dump(mode="json"), "option": option} for option, one in offers]}


def _table(offers: Sequence[Offer]) -> Any:
    shown = plain_table("option", "engine", "latency", "memory", "start")
    for option, one in offers:
        memory = "-" if one.memory_bytes is None else format_bytes(one.memory_bytes, _DIGITS)
        latency, start = format_time(one.latency_ms, _DIGITS), format_time(one.start_ms, _DIGITS)
        shown.add_row(option or "-", str(one.engine), latency, memory, start)
    return shown
