"""The commands for measured devices: `mistify profile-device`, `report-latency` and `devices`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from mistify.costs.catalogue import is_host
from mistify.costs.devices import Device, DeviceTable, check_name, check_table
from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.files.writing import write_json
from mistify.machine import MOST_THREADS
from mistify.package.manifest import Manifest
from mistify.profiling.isolated import measure_isolated
from mistify.tables import plain_table
from mistify.tokens import read_token
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import OptionalServer, PackageOption, TokenFile
from mistify_client.cli.serving import announcing_backoff
from mistify_client.files import output_directory, read_text
from mistify_client.porting.local_server import embedded_server
from mistify_client.profiling import measure_package
from mistify_client.rpc.devices import DevicesClient
from mistify_client.rpc.retry import Backoff
from mistify_client.runtime.trust import require_trusted

_TABLE = TypeAdapter(DeviceTable)

#: About three seconds; then the command reports that the server is unreachable.
_IMPATIENT = Backoff(attempts=5)

StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="Store of a server started for this command, instead of --server."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    app.command()(profile_device)
    app.command()(report_latency)
    app.command()(devices)


def profile_device(
    name: Annotated[str, typer.Option(help="Name of the device in goals.")],
    *,
    server: OptionalServer = None,
    store: StoreOption = None,
    threads: Annotated[str, typer.Option(metavar="N,N", help="Numbers of threads to measure.")] = "1",
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File for the measurements; an existing file is uploaded without measuring."
        ),
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Measure the latency of operators on this device, so that goals can name it as hardware.

    Takes less than 3 minutes, during which nothing else should run. Replaces a device of the same name. With
    only --table, nothing is uploaded: run the command again with --server to do that later.

    --name host refines the predictions for the server's machine, for all servers of this user on this
    machine. It needs no server, and always measures with one thread as well.
    """
    with reported_errors(), TemporaryDirectory(prefix="mistify-") as scratch:
        counts = _numbers(threads)
        if is_host(name):
            counts = sorted({1, *counts})
        if server is None and store is None and table is None:
            if not is_host(name):
                problem = Problem(
                    "--server", "nothing", "a destination for the table", "give --server, --store or --table"
                )
                raise invalid_config([problem], "the command line")
            store = Path(scratch)
        measured = None if table is None else _saved_table(name, table)
        if measured is None:
            check_name(name)
            if table is not None:
                output_directory(table.parent, "--table")
            if server is not None or store is not None:
                # Report an unreachable server before spending minutes on the measurement.
                with _connected(server, store, token_file, _IMPATIENT) as client:
                    client.devices()
            measured = _measured(name, counts)
            if table is not None:
                write_json(table, _TABLE.dump_python(measured, mode="json"), durable=True)
        if server is None and store is None:
            return
        with _connected(server, store, token_file) as client:
            device = client.register(measured)
        Console().print(_device_table([device]))


def report_latency(
    device: Annotated[str, typer.Option(help="Name of this device in goals.")],
    package: PackageOption,
    *,
    server: OptionalServer = None,
    store: StoreOption = None,
    token_file: TokenFile = None,
) -> None:
    """Measure a package on this device, and correct the server's predictions for the device.

    The package runs with the number of threads in its goal, as in an app.
    """
    with reported_errors():
        require_trusted(package)
        manifest = Manifest.load(package)
        with _connected(server, store, token_file) as client:
            taken = measure_package(package)
            typer.echo(client.report(device, manifest.job, manifest.goal, taken))


def devices(server: OptionalServer = None, store: StoreOption = None, token_file: TokenFile = None) -> None:
    """List the devices that goals can name as hardware, with the error of their predictions."""
    with reported_errors(), _connected(server, store, token_file) as client:
        Console().print(_device_table(client.devices()))


def _saved_table(name: str, path: Path) -> DeviceTable | None:
    """Return the table of a device from a file; None if the file does not exist."""
    if not path.exists():
        return None
    table = _read(path)
    if table.name != name:
        problem = Problem(
            "--name", f'"{name}"', f'"{table.name}", as in {path}', "give it, or another --table"
        )
        raise invalid_config([problem], "the command line")
    return table


def _measured(name: str, threads: list[int]) -> DeviceTable:
    """Measure this device, with a progress bar."""
    columns = (TextColumn("measuring"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task("measuring", total=1.0)
        return measure_isolated(name, threads, progress=lambda share: shown.update(task, completed=share))


def _read(path: Path) -> DeviceTable:
    try:
        table = _TABLE.validate_json(read_text(path))
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        problem = Problem(place or str(path), "something else", "a table", "remove it, and measure again")
        raise MistifyError(ErrorCode.INVALID_CONFIG, f"{path} does not contain a table", [problem]) from error
    check_table(table)
    return table


def _numbers(text: str) -> list[int]:
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isdecimal() and 0 < int(number) <= MOST_THREADS for number in numbers):
        problem = Problem("--threads", f'"{text}"', "numbers of threads", 'for example "1,2"')
        raise invalid_config([problem], "the command line")
    return [int(number) for number in numbers]


@contextmanager
def _connected(
    server: str | None, store: Path | None, token_file: Path | None, backoff: Backoff | None = None
) -> Iterator[DevicesClient]:
    """Yield a client of the server, or of a server started for this command."""
    token = read_token(token_file)
    if server is not None:
        with DevicesClient(server, token, backoff=backoff or announcing_backoff(server)) as client:
            yield client
        return
    if store is None:
        problem = Problem("--server", "nothing", "a server", "give --server or --store")
        raise invalid_config([problem], "the command line")
    with (
        embedded_server(store.resolve(), (), resume=False, porting=False) as started,
        DevicesClient(*started) as client,
    ):
        yield client


def _device_table(listed: list[Device]) -> Table:
    table = plain_table("device", "measured", "precision", "threads", "error (9 of 10 below)", "power", "on")
    for device in listed:
        for number, setting in enumerate(device.settings):
            first = number == 0
            table.add_row(
                device.name if first else "",
                f"{device.registered:%Y-%m-%d %H:%M} UTC" if first else "",
                "int8" if setting.integer else "float32",
                str(setting.threads),
                f"{setting.median_error:.1%} ({setting.p90_error:.1%})",
                "" if setting.watts is None else f"{setting.watts:.3g} W",
                f"{device.machine}, {device.runtime}" if first else "",
            )
    return table
