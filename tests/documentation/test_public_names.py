"""The reference lists exactly the public names: the `__all__` of the modules meant for users."""

import ast
import importlib
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.support.paths import REPOSITORY

REFERENCE = ("docs/reference/client.md", "docs/reference/extensions.md")

#: Modules that apps, scripts and plug-ins may import. All others may change with any version.
PUBLIC = (
    "executors.algorithms.adaptivenet.variants",
    "executors.contract.algorithm",
    "executors.contract.assignment",
    "executors.contract.executor",
    "executors.contract.params",
    "executors.contract.package_parts",
    "executors.contract.preparation",
    "executors.contract.profile",
    "executors.contract.slices",
    "executors.outputs.plugged_in",
    "executors.pruning.executor",
    "executors.pruning.importance",
    "executors.search.executor",
    "executors.structure",
    "executors.training.setup",
    "executors.training.trainer",
    "mistify.costs.axes",
    "mistify.costs.budget",
    "mistify.costs.network",
    "mistify.costs.quantization",
    "mistify.parsing.quantities",
    "mistify.parsing.validation",
    "mistify.peers.correlation",
    "mistify.peers.hints",
    "mistify_client",
    "mistify_client.hub",
    "mistify_client.monitor.policies.base",
    "mistify_client.monitor.sensing.sensors",
    "mistify_client.monitor.state.targets",
    "mistify_client.monitor.traces.lines",
    "mistify_client.privacy.ledger",
    "mistify_client.privacy.noise",
    "mistify_client.runtime.versions",
    "mistify_client.tuning",
)

DIRECTIVE = re.compile(r"^::: ([\w.]+)\n((?:    .*\n)*)", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
OWN = ("mistify", "executors", "mistify_client")


def documented(page: str) -> Iterator[str]:
    """Yield every name that a page of the reference lists."""
    for name, options in DIRECTIVE.findall((REPOSITORY / page).read_text() + "\n"):
        if name not in PUBLIC:
            yield name
            continue
        for member in yaml.safe_load(options)["options"]["members"]:
            yield f"{name}.{member}"


def exported(module: str) -> tuple[str, ...]:
    """Return `__all__` as written, without importing the module."""
    path = REPOSITORY.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return tuple(ast.literal_eval(node.value))
    raise AssertionError(f"{module} does not say what is public")


def imported(code: str) -> Iterator[str]:
    """Yield the names of this project that code imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OWN:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def examples() -> Iterator[str]:
    """Yield all Python code of the documentation."""
    for page in (REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")):
        yield from PYTHON.findall(page.read_text())
    for file in REPOSITORY.glob("docs/examples/**/*.py"):
        yield file.read_text()


def test_the_reference_lists_exactly_the_public_names() -> None:
    listed = [name for page in REFERENCE for name in documented(page)]
    assert len(listed) == len(set(listed))
    assert set(listed) == {f"{module}.{name}" for module in PUBLIC for name in exported(module)}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist(module: str) -> None:
    assert [name for name in exported(module) if not hasattr(importlib.import_module(module), name)] == []


def test_code_in_the_documentation_imports_only_public_names() -> None:
    public = {f"{module}.{name}" for module in PUBLIC for name in exported(module)}
    used = {name for code in examples() for name in imported(code)}
    assert len(used) > 20
    assert used - public - set(PUBLIC) == set()
