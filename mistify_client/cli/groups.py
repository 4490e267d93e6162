"""Groups of commands, which may call a server over TLS."""

import os
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command
from typing_extensions import override

from mistify_client.rpc.trust import CA, CERTIFICATE, KEY


class CommandGroup(TyperGroup):
    """A group whose commands have the options for TLS if they may call a server."""

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = self.registered(ctx, cmd_name)
        if command is not None and command.help is not None:
            command.help = _joined(command.help)
        return None if command is None else _with_tls(command)

    def registered(self, ctx: Any, name: str) -> Any:
        """Return a command as it was registered; None if there is none."""
        return super().get_command(ctx, name)


def _with_tls(command: Any) -> Any:
    """Add the options for TLS to a command that may call a server; they apply to the whole process."""
    names = {parameter.name for parameter in command.params}
    if not names.isdisjoint({"server", "token_file"}) and names.isdisjoint(option.name for option in _TLS):
        command.params += _TLS
    return command


def _tls_options() -> list[Any]:
    """Return the options for TLS as Typer creates them from a function's parameters."""

    def file(variable: str, text: str) -> Any:
        def keep(path: str | None) -> None:
            if path is not None:
                os.environ[variable] = path

        return typer.Option(envvar=variable, metavar="FILE", help=text, callback=keep)

    authority = (
        "PEM file with the authority's certificate, for a server at tls://. Default: those trusted by gRPC."
    )
    certificate = "PEM file with this client's certificate chain, for a server that asks for it."

    def command(
        ca: Annotated[str | None, file(CA, authority)] = None,
        certificate: Annotated[str | None, file(CERTIFICATE, certificate)] = None,
        key: Annotated[str | None, file(KEY, "PEM file with the private key of --certificate.")] = None,
    ) -> None:
        """Declare the options."""

    alone = typer.Typer()
    alone.command()(command)
    options = [one for one in get_command(alone).params if one.name in ("ca", "certificate", "key")]
    for option in options:
        option.expose_value = False
    return options


_TLS: Final = _tls_options()


def _joined(text: str) -> str:
    """Return a text with each paragraph on one line: Typer joins only the first one."""
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in text.split("\n\n"))
