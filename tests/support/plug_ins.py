"""Plug-ins as pip installs them: a directory with a module and its metadata."""

import os
import tomllib
from pathlib import Path

from tests.support.paths import REPOSITORY

EXAMPLES = REPOSITORY / "docs" / "examples"
COSTS, LAYERS, METRICS = "mistify.costs", "mistify.layers", "mistify.metrics"
LOSSES = "mistify.losses"


def installed(
    directory: Path, name: str, module: str, entry_points: dict[str, str], group: str = COSTS
) -> Path:
    """Write a package of one module with entry points of a group; return its directory for `sys.path`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.py").write_text(module)
    information = directory / f"{name}-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"{key} = {value}" for key, value in entry_points.items()]
    (information / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    return directory


def install_example(directory: Path, name: str, group: str) -> Path:
    """Install an example from the documentation with the entry points of its pyproject.toml."""
    project = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text())["project"]
    (module,) = (EXAMPLES / name).glob("*.py")
    return installed(directory, module.stem, module.read_text(), project["entry-points"][group], group)


def environment(*directories: Path) -> dict[str, str]:
    """Return environment variables that put these directories on a process's `sys.path`."""
    path = os.pathsep.join(map(str, (*directories, REPOSITORY)))
    return {**os.environ, "PYTHONPATH": path}
