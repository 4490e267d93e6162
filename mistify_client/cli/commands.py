"""Commands that are imported when they are asked for: most need libraries that the others do without."""

from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_group
from typing_extensions import override

#: The modules of this package that register commands, by the commands' names.
_MODULES: Final = {
    **dict.fromkeys(("jobs", "fetch", "cancel", "remove"), "jobs"),
    "report": "report",
    "run": "run",
    **dict.fromkeys(("monitor", "status", "target"), "monitor"),
    **dict.fromkeys(("tune", "withdraw"), "tune"),
    **dict.fromkeys(("adapt", "subnets"), "subnets"),
    **dict.fromkeys(("profile-device", "report-latency", "devices"), "profile"),
}


class Commands(TyperGroup):
    """The group's own commands, and those of modules that are not imported yet."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_MODULES]

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = self._registered(ctx, cmd_name)
        if command is not None and command.help is not None:
            command.help = _joined(command.help)
        return command

    def _registered(self, ctx: Any, name: str) -> Any:
        if name not in _MODULES:
            return super().get_command(ctx, name)
        module: Any = import_module(f"mistify_client.cli.{_MODULES[name]}")
        others = typer.Typer()
        module.register(others)
        return get_group(others).get_command(ctx, name)


def _joined(text: str) -> str:
    """Return a text with each paragraph on one line: Typer joins the first one alone."""
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in text.split("\n\n"))
