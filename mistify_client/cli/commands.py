"""Commands that are imported on demand: most need libraries that the others do not."""

from importlib import import_module
from typing import Any, Final

import typer
from typer.main import get_group
from typing_extensions import override

from mistify_client.cli.groups import CommandGroup

#: Command -> the module of this package that registers it.
_MODULES: Final = {
    **dict.fromkeys(("jobs", "fetch", "rename", "tag", "prioritize"), "jobs"),
    **dict.fromkeys(("pause", "resume", "cancel", "remove", "restore"), "jobs"),
    "report": "report",
    "layers": "layers",
    "run": "run",
    **dict.fromkeys(("versions", "rollback"), "versions"),
    **dict.fromkeys(("monitor", "status", "target"), "monitor"),
    "rollout": "rollouts",
    **dict.fromkeys(("tune", "withdraw"), "tune"),
    **dict.fromkeys(("adapt", "subnets"), "subnets"),
    **dict.fromkeys(("customize", "tasks"), "customize"),
    "adaptation": "adaptation",
    "engines": "engines",
    "export": "export",
    "lend": "lend",
    "trust": "trust",
    "whoami": "whoami",
    **dict.fromkeys(("profile-device", "report-latency", "devices"), "profile"),
}


class Commands(CommandGroup):
    """The group's own commands, and commands of modules that are not yet imported."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_MODULES]

    @override
    def registered(self, ctx: Any, name: str) -> Any:
        if name not in _MODULES:
            return super().registered(ctx, name)
        module: Any = import_module(f"mistify_client.cli.{_MODULES[name]}")
        others = typer.Typer()
        module.register(others)
        return get_group(others).get_command(ctx, name)
