"""Settings and fixtures of all tests."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.requirements import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401 (hooks)

# Nothing is asserted about time: a machine may be busy.
settings.register_profile("mistify", deadline=None)
settings.load_profile("mistify")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole systems first: they take longest, and one process would be left with them at the end."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


@pytest.fixture(scope="session")
def digits_resnet() -> Any:
    """The built-in model; tests must not change it."""
    from executors.sources import builtin_source

    return builtin_source("digits-resnet")
