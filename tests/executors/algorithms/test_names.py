"""No other code refers to an algorithm by name: differences are in descriptors and profiles."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from executors.contract.algorithm import built_in

ROOT = Path(__file__).parents[3]

#: Searched directories. Benchmarks, tests, docs and configs compare algorithms, and so name them.
SEARCHED = ("executors", "mistify", "mistify_server", "mistify_client", "docs_site", "proto")
SUFFIXES = {".py", ".pyi", ".html", ".js", ".css", ".proto", ".sql"}

#: Names that are also English or Python words; they count only as whole strings.
WORDS = {"nested", "random", "uniform"}

#: A section of the paper that an algorithm is named after.
SECTION = re.compile(r"AdaptiveNet \d(\.\d)?")

#: Files that may contain names, with the reason.
ALLOWED = {
    "mistify_server/store/sql/migrations/early_steps.py": "a released step knows the plans of its time",
}


def sources() -> Iterator[Path]:
    own = ROOT / "executors" / "algorithms"
    for folder in SEARCHED:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and own not in path.parents:
                yield path


def named_in(text: str, is_python: bool) -> set[str]:
    """Return the names of algorithms in a text; names that are ordinary words count only as whole strings."""
    lower = SECTION.sub("", text).lower()
    if is_python:
        nodes = ast.walk(ast.parse(text))
        strings = {node.value for node in nodes if isinstance(node, ast.Constant) and node.value in WORDS}
    else:
        strings = {word for word in WORDS if re.search(rf"['\"`]{word}['\"`]", text)}
    return {name for name in built_in().keys() - WORDS if name in lower} | strings


def test_names_are_found() -> None:
    assert named_in('x = "nested"  # like MorphNet', True) == {"nested", "morphnet"}
    assert named_in('if (name == "random") {}', False) == {"random"}
    assert named_in('"""A nested loop, by AdaptiveNet 5.1."""', True) == set()
    assert named_in("class ChamNetExecutor: pass", True) == {"chamnet"}
    assert built_in().keys() >= WORDS


def test_no_other_code_names_an_algorithm() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in sources()
        if (names := named_in(path.read_text(), path.suffix in {".py", ".pyi"}))
    }
    assert found.keys() == ALLOWED.keys(), found


@pytest.mark.parametrize("folder", SEARCHED)
def test_the_searched_directories_contain_files(folder: str) -> None:
    assert any((ROOT / folder) in path.parents for path in sources())
