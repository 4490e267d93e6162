"""Count skips as failures where all test dependencies have to be installed, as in `.ci/run`."""

import os
from collections.abc import Iterator

import pytest

REQUIRE_ALL = "MISTIFY_REQUIRE_ALL"

#: Reasons of skips that no installation can prevent; these stay skips.
UNAVOIDABLE = (
    "nothing can be mounted",  # needs privileges
    "no memory can be limited",  # as well
    "MISTIFY_TEST_DATA names no directory",  # needs CIFAR-10 and MLPerf Tiny
)


def fail_if_required(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Report a skip as a failure if the missing requirement could have been installed."""
    if os.environ.get(REQUIRE_ALL, "0") in ("", "0") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not any(part in reason for part in UNAVOIDABLE):
        report.outcome = "failed"
        report.longrepr = f"{reason}\n({REQUIRE_ALL} is set: what tests need has to be installed)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Check each test that was skipped."""
    report = yield
    fail_if_required(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Check each module that was skipped."""
    report = yield
    fail_if_required(report)
    return report
