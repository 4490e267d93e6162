"""Settings and fixtures for all tests."""

import gc
import os
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings

from tests.support.requirements import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401 (hooks)
from tests.support.slow import listed

# Tests, servers and workers already run as several processes: more threads would only wait for a core.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

# Terminals in tests can move their cursor, whatever the one is from which the tests are started.
os.environ["TERM"] = "xterm"

# No deadlines: the machine may be busy.
settings.register_profile("mistify", deadline=None)
settings.load_profile("mistify")


def pytest_configure(config: pytest.Config) -> None:
    """Share one new cache between all processes of a run, so that this machine is profiled only once.

    No settings of the user are read.
    """
    if not hasattr(config, "workerinput"):
        for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            directory = TemporaryDirectory()
            os.environ[variable] = directory.name
            config.add_cleanup(directory.cleanup)


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run end-to-end tests first, so that none of them runs alone at the end, and mark slow tests.

    Slow tests are those listed in `tests/slow.txt`, and every case of a `sampled` test except the first one
    that is not listed.
    """
    slow = listed()
    for item in items:
        if item.nodeid.removeprefix("tests/") in slow:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.parent.name not in ("end_to_end", "documentation"))
    kept = set[str]()
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            name = item.nodeid.partition("[")[0]
            if name in kept:
                item.add_marker(pytest.mark.slow)
            kept.add(name)


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: searching objects that stay takes 3 of 18 s."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude imported and collected objects from garbage collection: they live until the end."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def digits_resnet() -> Any:
    """Return the built-in model; tests must not modify it."""
    from executors.sources.keras.loading import builtin_source

    return builtin_source("digits-resnet")
