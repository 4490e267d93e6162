"""The accuracy that the monitor preserves, and the packages of a run."""

import math

import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.device import switching
from benchmarks.device.switching_load import accuracy_share


@pytest.mark.parametrize(("monitor", "share"), [(60.0, 0.0), (78.0, 0.9), (81.0, 1.05)])
def test_a_monitor_that_never_switches_preserves_no_accuracy(monitor, share):
    figures = {"monitor_accuracy": monitor, "largest_accuracy": 80.0, "smallest_accuracy": 60.0}
    assert accuracy_share(figures) == pytest.approx(share)


@pytest.mark.parametrize("largest", [60.0, 55.0])
def test_no_accuracy_can_be_preserved_if_the_largest_branch_is_not_better(largest):
    figures = {"monitor_accuracy": 60.0, "largest_accuracy": largest, "smallest_accuracy": 60.0}
    assert math.isnan(accuracy_share(figures))


def test_quick_and_full_runs_keep_separate_packages(tmp_path, monkeypatch):
    ported = []

    def port(name, data, store, packages, steps):
        ported.append(steps)
        packages.mkdir()

    monkeypatch.setattr(switching, "_port", port)
    runs = {
        quick: switching._ported("resnet8", tmp_path, tmp_path, quick=quick) for quick in (True, False, True)
    }

    assert ported == [40, 400]
    assert runs[True] != runs[False]
