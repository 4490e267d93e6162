"""What `factory.quality` makes of the scores of slices."""

import numpy as np
import pytest

from benchmarks.factory import quality
from benchmarks.factory.quality import LIMITS, TARGETS, SlicesWithin, alikeness
from benchmarks.harness.run import run


def slices(scores, limit=0.5):
    gates = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1], [0, 1, 0, 1]], bool)
    tasks = [("has", "1"), ("has", "2"), ("exactly:1", "2"), ("exactly:1", "1")]
    return SlicesWithin(limit, np.array(scores), np.array([1, 3]), gates, tasks)


def test_tasks_that_were_not_trained_are_apart():
    figures = slices([90.0, 70.0, 100.0, 80.0]).figures
    assert figures["known"] == 95
    assert figures["unseen"] == 75
    assert figures["lowest"] == figures["lowest_unseen"] == 70
    assert figures["open"] == 8 / 16


def test_units_beyond_the_limit_are_those_of_the_task_that_opens_most():
    assert slices([90.0] * 4).figures["beyond"] == 0
    assert slices([90.0] * 4, limit=0.3).figures["beyond"] == pytest.approx(0.2)


def test_alike_tasks_with_alike_gates_correlate():
    one = slices([90.0] * 4)
    assert one.figures["alike"] == pytest.approx(1)
    assert alikeness(one.gates[[0, 2, 1, 3]], one.tasks) < 0


def test_every_figure_with_a_target_is_measured_on_each_side(monkeypatch, capsys):
    """A quick run decides nothing but whether limits are kept, which they are not here."""
    sides = []

    def of_side(side, seed, quick):
        sides.append((side, seed, quick))
        return [slices([90.0] * 4, limit) for limit in LIMITS]

    monkeypatch.setattr(quality, "tested_side", of_side)
    assert run("factory.quality", TARGETS, quality.measure, ["--quick"], quality.add_options) == 1
    assert sides == [(side, 0, True) for side in quality.SIDES]
    assert "paper, seed 0" in capsys.readouterr().out
    found = quality.measure(type("Options", (), {"seeds": [0, 1], "quick": False, "side": None})())
    assert TARGETS.keys() <= found.keys()


def test_over_seeds_the_worst_counts_of_what_has_to_hold_for_each(monkeypatch):
    results = {0: [90.0, 70.0, 100.0, 80.0], 1: [94.0, 60.0, 100.0, 80.0]}
    monkeypatch.setattr(quality, "tested_side", lambda side, seed, quick: [slices(results[seed])])
    found = quality.measure(type("Options", (), {"seeds": [0, 1], "quick": False, "side": "default"})())
    assert found["known_at_0.5"] == 96
    assert found["lowest_at_0.5"] == 60
