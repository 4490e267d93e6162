"""Commands are imported on demand, so a list says which module registers which command."""

from importlib import import_module
from pathlib import Path

import click
import typer
from typer.main import get_command

from mistify_client.cli import commands
from mistify_client.cli.main import app


def registered_commands() -> set[str]:
    """Return the names of the commands that the modules register."""
    registered = typer.Typer()
    for path in Path(commands.__file__).parent.glob("*.py"):
        if "def register(app: typer.Typer)" in path.read_text():
            import_module(f"mistify_client.cli.{path.stem}").register(registered)
    return set(get_command(registered).commands)  # type: ignore[attr-defined]


def test_every_registered_command_can_be_called() -> None:
    registered = registered_commands()
    assert {"jobs", "rename", "report-latency"} <= registered
    command = get_command(app)
    assert registered <= set(command.list_commands(click.Context(command)))  # type: ignore[attr-defined]
