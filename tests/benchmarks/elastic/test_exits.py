"""The figures of `elastic.exits` from the results of its runs."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.elastic.exits import Run, Side, best_within, figures_of, measured_exits
from executors.data import Dataset
from mistify.package.exits import ExitStore
from tests.support.paths import REPOSITORY

DATA = REPOSITORY / "tests" / "data"

#: The multiply-adds in the manifest of the package.
WHOLE = 900_000


def run(saved: float, lost: float, smaller: float, gained: float) -> Run:
    return Run(80.0, {0.5: Side(saved / 2, lost / 2, 1.0), 1.0: Side(saved, lost, 2.0)}, smaller, gained)


def test_figures_are_medians_and_a_smaller_network_is_not_helped_by_longer_training() -> None:
    runs = [run(20.0, 0.4, 0.5, 0.3), run(30.0, 0.8, -0.5, 2.0), run(40.0, 0.6, 1.0, 0.0)]
    assert figures_of(runs) == pytest.approx(
        {
            "source": 80.0,
            "saved_at_0.5": 15.0,
            "lost_at_0.5": 0.3,
            "faster_at_0.5": 1.0,
            "saved_at_1": 30.0,
            "lost_at_1": 0.6,
            "faster_at_1": 2.0,
            "gained_over_smaller": 0.4,  # 0.8 - 0.4, 1.5 - 0.8 and 1.0 - 0.6
        }
    )


def test_exits_within_a_smaller_loss_are_used_if_a_larger_one_has_none() -> None:
    offered = {0.0: Side(), 0.5: Side(10.0, 0.2, 5.0)}
    assert best_within(offered, 1.0) == best_within(offered, 0.5) == offered[0.5]
    assert best_within(offered, 0.4) == Side()


def test_savings_count_the_stages_that_answer(tmp_path: Path) -> None:
    """The package and its expected answers are those of the client's tests."""
    expected = np.load(DATA / "exits_expected.npz")
    images, digits = expected["image"].astype(np.float32), expected["digit"].astype(np.int64)
    package = Path(shutil.copytree(DATA / "exits", tmp_path / "package"))
    sides = measured_exits(package, (1.0, 3.0), Dataset({"image": images}, {"digit": digits}))
    store = ExitStore.model_validate_json((package / "exits.json").read_bytes())
    costs = np.array([stage.multiply_adds for stage in store.stages])
    confident, right = expected["answers"][:-1].max(2), expected["answers"].argmax(2) == digits
    whole = np.mean(expected["whole"].argmax(1) == digits)
    for side, choice in zip(sides.values(), store.choices, strict=True):
        ends = np.vstack([confident >= choice.threshold, np.ones((1, len(digits)))]).argmax(0)
        assert side.lost == pytest.approx(100 * (whole - right[ends, np.arange(len(digits))].mean()))
        assert side.saved == pytest.approx(100 * (1 - costs[ends].mean() / WHOLE))
