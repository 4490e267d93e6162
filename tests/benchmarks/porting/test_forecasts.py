"""Intervals are judged by their coverage and their width."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.porting.forecast_networks import CASES, write_case
from benchmarks.porting.forecasts import FITTED, TARGETS, Outcome, figures_of
from mistify.config.reading import parse_batch


def outcome(low: float, high: float, reached: float, *, fresh: bool = True) -> Outcome:
    return Outcome("network", fresh, low, high, reached, 1.0)


def test_the_score_of_an_interval_adds_its_width_and_the_distance_of_misses() -> None:
    assert outcome(0.7, 0.9, 0.9).score == pytest.approx(0.2)
    assert outcome(0.7, 0.9, 0.95).score == pytest.approx(0.2 + 40 * 0.05)
    assert outcome(0.7, 0.9, 0.6).score == pytest.approx(0.2 + 40 * 0.1)


def test_intervals_that_hold_only_because_they_are_wide_miss_the_targets() -> None:
    idle = [outcome(0, 1, 0.8), outcome(0, 1, 0.9, fresh=False)]
    figures = figures_of(idle)
    assert (figures["held"], figures["held_fresh"], figures["held_experienced"]) == (1, 1, 1)
    assert figures["held"] > TARGETS["held"]["max"]
    assert figures["median_width"] > TARGETS["median_width"]["max"]
    assert figures["score"] > TARGETS["score"]["max"]


def test_the_scoring_prefers_the_nominal_interval() -> None:
    reached = np.random.default_rng(0).normal(0.8, 0.02, 2_000).tolist()

    def score(deviations: float) -> float:
        low, high = 0.8 - 0.02 * deviations, 0.8 + 0.02 * deviations
        outcomes = [outcome(low, high, each, fresh=place % 2 == 0) for place, each in enumerate(reached)]
        return figures_of(outcomes)["score"]

    assert score(1.96) < min(score(1.0), score(3.5))


def test_networks_used_for_fitting_do_not_count_for_the_targets() -> None:
    assert FITTED
    assert {case.name for case in CASES} - FITTED
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_case_is_a_valid_config(tmp_path: Path) -> None:
    case = next(case for case in CASES if not case.epochs)
    common = write_case(case, 1, tmp_path / "data")
    (config,) = parse_batch(json.dumps([{"id": "a", "adaptation_goal": {"FLOP": "0.5x"}, **common}]))
    assert config.algorithm.config["seed"] == 1
    with np.load(tmp_path / "data" / "train.npz") as train, np.load(tmp_path / "data" / "test.npz") as test:
        assert len(test["x"]) == 539
        assert len(train["x"]) == len(train["y"]) == 1_797 - 539
