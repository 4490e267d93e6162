"""Settings and fixtures of all tests."""

import gc
import os
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings

from tests.support.requirements import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401 (hooks)
from tests.support.slow import listed

# Several processes run tests, those of servers and workers among them: threads of each only wait for a core.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

# Nothing is asserted about time: a machine may be busy.
settings.register_profile("mistify", deadline=None)
settings.load_profile("mistify")


def pytest_configure(config: pytest.Config) -> None:
    """Give all processes of a run one new cache, which has this machine's profile once it was measured."""
    if not hasattr(config, "workerinput"):
        cache = TemporaryDirectory()
        os.environ["XDG_CACHE_HOME"] = cache.name
        config.add_cleanup(cache.cleanup)


@pytest.hookimpl(tryfirst=True)  # before tests are left out by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the end-to-end tests first, which would keep one process busy at the end; mark what is slow.

    Slow are the tests that `tests/slow.txt` lists, and of a test that is `sampled` all parameters but the
    first one that is not so anyway.
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


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of the garbage collector's rounds: it is there to the end."""
    gc.freeze()


@pytest.fixture(scope="session")
def digits_resnet() -> Any:
    """Return the built-in model, which tests must not change."""
    from executors.sources.keras.loading import builtin_source

    return builtin_source("digits-resnet")
