"""Packages that are current, and have yet to prove themselves."""

import pytest

from mistify_client.monitor.replacement.ledger import Phase
from mistify_client.runtime.versions import current
from tests.mistify_client.monitor.replacement.conftest import on_probation


def test_a_package_that_takes_longer_in_use_is_rolled_back(site, package):
    on_probation(site, before_ms=1.0, fastest_ms=1.5)
    assert "takes 1.5ms, that of the package before took 1ms" in site.until("rolled back")["reason"]
    assert current(package) == package


@pytest.mark.parametrize(
    "measured",
    [
        {"before_ms": 1.0, "fastest_ms": 0.5},
        {"before_ms": 1.0, "fastest_ms": 1.5, "fits": True},
        {"before_ms": None, "fastest_ms": 1.5},
    ],
)
def test_a_package_that_proves_itself_is_kept(site, measured):
    background = on_probation(site, **measured)
    assert background.replacement.phase is Phase.KEPT
    assert site.goal == background.replacement.goal


def test_probation_lasts(site):
    background = site.ask()
    site.until("probation")
    background.fastest_ms = 9.0
    background.judge(1000.0, False)
    background.judge(1059.0, False)
    assert background.replacement.phase is Phase.PROBATION
