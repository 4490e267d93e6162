"""A missing requirement skips a test by default, and fails it where all requirements have to be installed."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.support.paths import REPOSITORY
from tests.support.requirements import REQUIRE_ALL

MODULES = {
    "test_whole.py": "import pytest\npytest.importorskip('no_such_module')\n",
    "test_one.py": """
import pytest

def test_needs_a_package():
    pytest.importorskip("no_such_module")

@pytest.mark.skipif(True, reason="nothing can be mounted")
def test_needs_privileges():
    pass

@pytest.mark.xfail
def test_is_known_to_fail():
    raise AssertionError

def test_passes():
    pass
""",
}


def outcomes(directory: Path, required: str, *options: str) -> Counter[str]:
    """Run the tests in `MODULES`, and count their outcomes."""
    for name, text in MODULES.items():
        (directory / name).write_text(text)
    plugins = ("-p", "tests.support.requirements", "-p", "xdist", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *plugins, *options]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), REQUIRE_ALL: required}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # importing other plug-ins would take seconds
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [*command, directory], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    actual = re.findall(r"(\d+) (passed|failed|skipped|xfailed|error)", done.stdout.splitlines()[-1])
    assert (done.returncode == 0) == (not {"failed", "error"} & {word for _, word in actual}), done.stdout
    return Counter({word: int(count) for count, word in actual})


def test_a_missing_requirement_skips_a_test(tmp_path: Path) -> None:
    assert outcomes(tmp_path, "0") == {"skipped": 3, "xfailed": 1, "passed": 1}


def test_a_missing_requirement_fails_a_test_if_it_is_mandatory(tmp_path: Path) -> None:
    """Also in xdist's worker processes."""
    expected = {"error": 1, "failed": 1, "skipped": 1, "xfailed": 1, "passed": 1}
    assert outcomes(tmp_path, "1", "--continue-on-collection-errors", "--numprocesses", "1") == expected
