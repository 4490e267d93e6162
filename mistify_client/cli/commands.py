"""Commands that are imported on demand: most need libraries that the others do not."""

import os
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group
from typing_extensions import override

from mistify_client.rpc.trust import CA, CERTIFICATE, KEY

#: Command -> the module of this package that registers it.
_MODULES: Final = {
    **dict.fromkeys(("jobs", "fetch", "rename", "tag", "cancel", "remove", "restore"), "jobs"),
    "report": "report",
    "layers": "layers",
    "run": "run",
    **dict.fromkeys(("versions", "rollback"), "versions"),
    **dict.fromkeys(("monitor", "status", "target"), "monitor"),
    **dict.fromkeys(("tune", "withdraw"), "tune"),
    **dict.fromkeys(("adapt", "subnets"), "subnets"),
    **dict.fromkeys(("customize", "tasks"), "customize"),
    "adaptation": "adaptation",
    "engines": "engines",
    "export": "export",
    "lend": "lend",
    "trust": "trust",
    **dict.fromkeys(("profile-device", "report-latency", "devices"), "profile"),
}


class Commands(TyperGroup):
    """The group's own commands, and commands of modules that are not yet imported."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_MODULES]

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = self._registered(ctx, cmd_name)
        if command is not None and command.help is not None:
            command.help = _joined(command.help)
        return None if command is None else _with_tls(command)

    def _registered(self, ctx: Any, name: str) -> Any:
        if name not in _MODULES:
            return super().get_command(ctx, name)
        module: Any = import_module(f"mistify_client.cli.{_MODULES[name]}")
        others = typer.Typer()
        module.register(others)
        return get_group(others).get_command(ctx, name)


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
