"""The command `lend`: run blocks of packages for other devices."""

import logging
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from mistify.errors import invalid_config
from mistify.machine import MOST_THREADS
from mistify.package.opened import Package
from mistify.parsing.quantities import parse_size
from mistify.parsing.validation import InvalidValue
from mistify.tokens import read_token
from mistify.wire.listening import Certificate
from mistify_client.cli.errors import reported_errors
from mistify_client.lending.helper import serving
from mistify_client.lending.packages import LentPackages
from mistify_client.lending.quotas import Quotas
from mistify_client.lending.worker import WorkerLimits
from mistify_client.runtime.trust import Trust, check_named

DEFAULT_LISTEN: Final = "127.0.0.1:7470"

#: Less memory is a mistake, such as a missing unit: no network with its buffers fits.
_LEAST_BYTES: Final = 1_000_000


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command()(lend)


def lend(
    package: Annotated[
        list[Path], typer.Option(metavar="DIR", help="Package whose blocks may run here; repeatable.")
    ],
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address for other devices; port 0 picks a free port.")
    ] = DEFAULT_LISTEN,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that devices must send; required beyond this machine."),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="PEM file with this helper's certificate chain; devices then use tls://HOST:PORT."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file with this helper's private key.")] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(help="PEM file with the authority of which every device must present a certificate."),
    ] = None,
    clients: Annotated[int, typer.Option(min=1, max=1000, help="Devices at a time.")] = 4,
    rate: Annotated[float, typer.Option(min=0.1, help="Inferences a second for each device.")] = 100.0,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for the blocks of each device, at least 1MB.")
    ] = "512MB",
    threads: Annotated[
        int, typer.Option(min=1, max=MOST_THREADS, help="Threads for the blocks of each device.")
    ] = 1,
) -> None:
    """Run blocks of packages for other devices, until SIGTERM or Ctrl-C.

    Only blocks of the named packages run, each device's in a process of its own. Algorithms such as
    adaptivenet and crowdhmt make blocks, with "blocks": true in their config.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with reported_errors():
        quotas = Quotas(clients, rate, WorkerLimits(_bytes(memory), threads))
        trust = Trust.configured()

        def trusted(directory: Path) -> Package:
            opened = Package.open(directory)
            check_named(opened, trust)
            return opened

        packages = LentPackages(map(trusted, package), trusted)
        certificate = Certificate.of(tls_certificate, tls_key, tls_client_ca)
        with serving(
            packages, quotas, listen, token=read_token(token_file), certificate=certificate
        ) as address:
            typer.echo(f"listening on {address}")
            with suppress(KeyboardInterrupt):
                while True:
                    signal.pause()


def _bytes(text: str) -> int:
    try:
        size = int(parse_size(text))
        if size < _LEAST_BYTES:
            unit_missing = text.strip().isdecimal()
            fix = f"add the unit, such as {text.strip()}MB" if unit_missing else "raise it"
            raise InvalidValue(text, 'at least 1MB, such as "512MB"; a plain number is bytes', fix)
        return size
    except InvalidValue as error:
        raise invalid_config([error.problem("--memory")], "the command line") from error
