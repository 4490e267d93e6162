"""Packages with blocks, and helpers in this process."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mistify.package.opened import Package
from mistify_client.lending.helper import serving
from mistify_client.lending.packages import LentPackages
from mistify_client.lending.quotas import Quotas
from mistify_client.lending.worker import WorkerLimits
from tests.support.paths import DATA
from tests.support.processes import children_that_run

TOKEN = "only for tests"  # noqa: S105
LIMITS = WorkerLimits(memory=300_000_000, threads=1)


@pytest.fixture(params=["blocks", "blocks_int8"])
def package(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a package with blocks, in float32 and in int8."""
    return Path(shutil.copytree(DATA / request.param, tmp_path / "package"))


@pytest.fixture
def float_package(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "blocks", tmp_path / "package"))


@contextmanager
def helper(
    package: Path,
    *,
    clients: int = 8,
    rate: float = 1e6,
    limits: WorkerLimits = LIMITS,
    token: str | None = TOKEN,
    address: str = "127.0.0.1:0",
) -> Iterator[str]:
    """Run a helper for a package, and yield its address."""
    packages = LentPackages([Package.open(package)])
    with serving(packages, Quotas(clients, rate, limits), address, token=token) as shown:
        yield shown


def workers() -> set[int]:
    """Return the processes of sessions; those of an earlier helper may not have ended yet."""
    return {*children_that_run("mistify_client.lending.worker")}


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; pytest's time limit ends a test in which it never does."""
    while not condition():
        time.sleep(0.01)
