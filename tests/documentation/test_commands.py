"""All commands and options in the documentation exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from mistify_client.cli.main import app as client
from mistify_server.cli import app as server
from tests.documentation.test_references import PAGES
from tests.support.paths import REPOSITORY

COMMANDS = {"mistify": get_command(client), "mistify-server": get_command(server)}

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:mistify|mistify-server) [^`]+)`|<code>((?:mistify|mistify-server) [^<]+)</code>")
ALL_PAGES = [*PAGES, *(REPOSITORY / "mistify_server" / "web" / "templates").glob("*.html")]


def commands_in(page: Path) -> Iterator[str]:
    """Yield the commands of a page that call one of the two command lines."""
    text = page.read_text()
    for language, block in BLOCK.findall(text):
        for line in (block if language in ("", "console") else "").replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ").partition("  #")[0].rstrip("& ")
            if command.split(" ")[0] in COMMANDS:
                yield command
    yield from (" ".join("".join(found).split()) for found in INLINE.findall(re.sub(BLOCK, "", text)))


def unknown(words: list[str]) -> str:
    """Return the first unknown word of a command; empty if all are known."""
    command: Any = COMMANDS[words[0]]
    context = typer.Context(command, info_name=words[0])
    rest = words[1:]
    while isinstance(command, TyperGroup) and rest:
        name, *rest = rest
        found = command.get_command(context, name)
        if found is None:
            return name
        command, context = found, typer.Context(found, info_name=name, parent=context)
    options = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    given = [word.partition("=")[0] for word in rest if word.startswith("--")]
    wrong = [option for option in given if option not in options]
    if wrong or any(parameter.param_type_name == "argument" for parameter in command.params):
        return "".join(wrong[:1])
    extra = command.make_parser(context).parse_args(list(rest))[1]
    return "".join(extra[:1])


def test_unknown_commands_and_options_are_found() -> None:
    assert unknown(shlex.split("mistify port goals.json --out out")) == ""
    assert unknown(shlex.split("mistify-server models add NAME FILE --store DIR")) == ""
    assert unknown(shlex.split("mistify prot goals.json")) == "prot"
    assert unknown(shlex.split("mistify port goals.json --ot out")) == "--ot"
    assert unknown(shlex.split("mistify profile-device board --server HOST:PORT")) == "board"


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_every_command_exists_with_its_options(page: Path) -> None:
    for command in commands_in(page):
        assert unknown(shlex.split(command)) == "", command


def test_commands_are_found_in_the_documentation() -> None:
    found = [command for page in PAGES for command in commands_in(page)]
    assert len(found) > 60
    assert any(command.startswith("mistify-server groups add") for command in found)
