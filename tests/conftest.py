"""Settings and fixtures of all tests."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings

from tests.requirements import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401 (hooks)

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the end-to-end tests first: they take longest and would keep one process busy at the end."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


@pytest.fixture(scope="session")
def digits_resnet() -> Any:
    """Return the built-in model, which tests must not change."""
    from executors.sources import builtin_source

    return builtin_source("digits-resnet")
