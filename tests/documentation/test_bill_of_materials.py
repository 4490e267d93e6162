"""The bill of materials of `make bom` lists what is installed, and what Mistify itself requires."""

import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY


def normal(name: str) -> str:
    """Return the name of a package as in indexes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_bill_of_materials_lists_every_installed_package(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py")
    path, project = tmp_path / "bom.json", REPOSITORY / "pyproject.toml"
    options = ("--pyproject", project, "--output-reproducible", "--no-validate", "--output-file", path)
    command = [sys.executable, "-m", "cyclonedx_py", "environment", *options, sys.executable]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    bom = json.loads(path.read_text())
    root = bom["metadata"]["component"]
    listed = {(normal(each["name"]), each["version"]) for each in (root, *bom["components"])}
    # Not those that libraries carry along and add to the path of this process, such as setuptools.
    installed = distributions(path=[sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    assert listed == {(normal(each.name), each.version) for each in installed}
    names = {each["bom-ref"]: normal(each["name"]) for each in bom["components"]}
    (required,) = (each["dependsOn"] for each in bom["dependencies"] if each["ref"] == root["bom-ref"])
    own = tomllib.loads(project.read_text())["project"]["dependencies"]
    assert {normal(re.split("[<>=]", each)[0]) for each in own} <= {names[each] for each in required}
