"""Current packages on probation."""

import shutil

import pytest

from mistify.package.manifest import Manifest
from mistify_client.monitor.replacement.ledger import Ledger, Phase, Replacement
from mistify_client.runtime.versions import current, install
from tests.mistify_client.monitor.replacement.conftest import on_probation
from tests.support.disks import files_limited_to


def test_a_package_that_is_slower_in_use_is_rolled_back(site, package):
    on_probation(site, before_ms=1.0, fastest_ms=1.5)
    assert "takes 1.5ms, that of the previous package took 1ms" in site.until("rolled back")["reason"]
    assert current(package) == package


def test_versions_tuned_from_a_rejected_package_are_rolled_back_as_well(site, package, tmp_path):
    def tune():
        tuned = shutil.copytree(current(package), tmp_path / "tuned")
        Manifest.load(tuned).model_copy(update={"tuned_from": "0" * 64}).save(tuned)
        install(package, tuned)

    on_probation(site, before_ms=1.0, fastest_ms=1.5, meanwhile=tune)
    site.until("rolled back")
    assert current(package) == package


def test_a_rollback_stops_at_the_shipped_package(site, package):
    """Even if the shipped package was meanwhile replaced by one of the rejected goal."""
    shipped = Manifest.load(package)
    left = Replacement(
        goal=shipped.goal, config="[]", key="key", job=shipped.job, phase=Phase.ROLLING_BACK, reason="slow"
    )
    Ledger(site.state.replacement).save(left)
    site.daemon().resume()
    assert site.entries.until(event="replacement")["phase"] == "rolled back"
    assert current(package) == package


@pytest.mark.parametrize(
    "measured",
    [
        {"before_ms": 1.0, "fastest_ms": 0.5},
        {"before_ms": 1.0, "fastest_ms": 1.5, "fits": True},
        {"before_ms": None, "fastest_ms": 1.5},
    ],
)
def test_a_package_that_is_fast_enough_is_kept(site, measured):
    background = on_probation(site, **measured)
    assert background.replacement.phase is Phase.KEPT
    assert site.goal == background.replacement.goal


def test_a_disk_that_stays_full_delays_the_judgement_and_takes_no_memory(site):
    background = site.ask()
    site.until("probation")
    background.fastest_ms = 9.0
    with files_limited_to(0):
        for second in range(600):
            background.judge(1000.0 + second, False)
    assert background.replacement.phase is Phase.PROBATION
    assert len(background._probation) <= 61
    background.judge(1600.0, False)
    assert background.replacement.phase is not Phase.PROBATION


def test_probation_lasts_for_its_full_time(site):
    background = site.ask()
    site.until("probation")
    background.fastest_ms = 9.0
    background.judge(1000.0, False)
    background.judge(1059.0, False)
    assert background.replacement.phase is Phase.PROBATION
