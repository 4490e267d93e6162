"""All files, functions and headings named in the documentation exist."""

import ast
import re
from functools import cache

import pytest

from docs_site.links import COMMANDS, SETTINGS
from tests.support.paths import REPOSITORY

PAGES = sorted(
    page
    for page in (
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob("docs/**/*.md"),
        *REPOSITORY.glob("benchmarks/*.md"),
    )
    if page.is_file()
)
MADE = {REPOSITORY / "docs" / page for page in (SETTINGS, COMMANDS)}
CODE_PATHS = ("docs/code-paths.md", "docs/blocks.md")
MAPS = ("README.md", "CONTRIBUTING.md", "docs/architecture.md", *CODE_PATHS, "docs/papers.md")

FOLDERS = "mistify|executors|mistify_server|mistify_client|proto|tests|benchmarks|docs|configs"
PATH = re.compile(rf"(?<![\w./:-])(?:{FOLDERS})/[\w./-]*\w/?")
NAMES = re.compile(r"`([\w/]+\.py)`:\s+((?:`[\w.]+`(?:,\s+)?)+)")
NODES = re.compile(r'\["\d+ ([\w/]+\.py)<br/>([^"]+)"\]')
DOTTED = re.compile(r"(?<![\w.])(?:mistify|executors|mistify_server|mistify_client)(?:\.(?!db\b)\w+)+")
ENTRY_POINTS = {
    f"mistify.{kind}"
    for kind in ("algorithms", "policies", "correlations", "costs", "metrics", "losses", "layers", "variants")
}
#: Services, by which spans are named, and tags and attributes of runs and spans, as the code writes them.
SERVICES = {
    f"mistify.v1.{service}"
    for file in (REPOSITORY / "proto").rglob("*.proto")
    for service in re.findall(r"^service (\w+)", file.read_text(), re.MULTILINE)
}
KEYS = SERVICES | {
    key
    for package in ("mistify_client", "mistify_server")
    for module in (REPOSITORY / package).rglob("*.py")
    for key in re.findall(r'"(mistify\.[a-z_.]+)"', module.read_text())
}
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def defined(tree: ast.AST, prefix: str = "") -> set[str]:
    """Return the names that a module defines or imports, with methods as `Class.method`."""
    names = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {prefix + target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.If):  # type-checking imports, which are lazy at run time
            names |= defined(node, prefix)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(prefix + node.name)
            names |= defined(node, f"{node.name}.") if isinstance(node, ast.ClassDef) else set()
    return names


@cache
def names_in(path: str) -> set[str]:
    return defined(ast.parse((REPOSITORY / path).read_text()))


def importable(dotted: str) -> bool:
    """Return whether a dotted name is a module or a name in a module."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        module = REPOSITORY.joinpath(*parts[:count])
        for file in (module.with_suffix(".py"), module / "__init__.py"):
            if file.is_file():
                rest = ".".join(parts[count:])
                return not rest or rest in names_in(str(file))
    return False


def anchors(page) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def named_in(page: str) -> list[tuple[str, str]]:
    """Return the functions that a page assigns to a file, as (file, function)."""
    text = (REPOSITORY / page).read_text()
    listed = [(path, name) for path, names in NAMES.findall(text) for name in re.findall(r"[\w.]+", names)]
    return listed + [(path, name) for path, names in NODES.findall(text) for name in names.split(", ")]


@pytest.mark.parametrize("page", MAPS)
def test_every_path_that_a_page_names_exists(page):
    paths = {path.rstrip(".") for path in PATH.findall((REPOSITORY / page).read_text())}
    assert len(paths) > 10
    assert [path for path in sorted(paths) if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize("page", CODE_PATHS)
def test_every_function_that_a_page_assigns_to_a_file_is_in_it(page):
    listed = named_in(page)
    assert len(listed) > 20
    # A node of the diagram may omit the class.
    missing = [
        (path, name)
        for path, name in listed
        if name not in names_in(path) and not any(known.endswith(f".{name}") for known in names_in(path))
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_module_and_class_that_a_page_names_exists(page):
    names = set(DOTTED.findall(page.read_text())) - ENTRY_POINTS - KEYS
    assert [name for name in sorted(names) if not importable(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_python_snippet_imports_existing_names(page):
    for snippet in PYTHON.findall(page.read_text()):
        imports = [node for node in ast.walk(ast.parse(snippet)) if isinstance(node, ast.ImportFrom)]
        names = [f"{node.module}.{alias.name}" for node in imports for alias in node.names]
        own = [name for name in names if DOTTED.fullmatch(name)]
        assert [name for name in own if not importable(name)] == [], snippet


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_has_a_target(page):
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if target.resolve() in MADE:
            continue  # `make docs` checks it
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
