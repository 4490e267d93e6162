"""Errors for an installation without the libraries of an extra."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires

import pytest

from mistify.extras import _LIBRARIES


@pytest.mark.parametrize(
    ("code", "missing", "message"),
    [
        ("import mistify_client.cli.main", "typer", "the command mistify needs typer"),
        ("import mistify_client; mistify_client.load", "ai_edge_litert", "mistify_client.load needs ai_edge"),
        ("import mistify_server.cli", "pydantic_settings", "the server needs pydantic_settings"),
    ],
)
def test_what_needs_a_missing_library_names_the_extra(code, missing, message):
    program = f"import sys; sys.modules[{missing!r}] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert message in last
    extra = "server" if "server" in code else "client"
    assert last.endswith(f"run pip install 'mistify-porting[{extra}]'")


def test_nothing_else_is_needed_to_import_the_client():
    program = "import sys; sys.modules['typer'] = None\nimport mistify_client, mistify_client.hub"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("extra", _LIBRARIES)
def test_the_libraries_are_those_of_the_extra(extra):
    required = {
        re.split(r"[>=<\[; ]", each)[0]
        for each in requires("mistify-porting") or []
        if each.endswith((f'extra == "{extra}"', 'extra == "client"'))
    }
    of_module = packages_distributions()
    listed = {of_module[name][0] for name in _LIBRARIES[extra]}
    assert {name.casefold() for name in listed} <= required
    if extra == "client":
        assert {name.casefold() for name in listed} == required
