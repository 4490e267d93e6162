"""Which figures the comparison of precisions yields."""

import pytest

from benchmarks.harness import EXIT_SKIPPED
from benchmarks.porting import Packaged
from benchmarks.precision import SHARES, TARGETS, Row, _lost, figures_of, main
from mistify.costs.quantization import Quantization


def rows() -> list[Row]:
    accuracies = {"none": 0.80, "float16": 0.80, "dynamic": 0.798, "int8": 0.79, "int8-qat": 0.796}
    return [
        Row(share, Quantization(name), Packaged(accuracy - (1 - share) / 10, 100, 100.0, 0.1, ""))
        for share in SHARES
        for name, accuracy in accuracies.items()
    ]


def test_every_target_has_its_figure() -> None:
    figures = figures_of(rows())
    assert set(TARGETS) <= set(figures)
    assert figures["int8_lost_points_at_1x"] == pytest.approx(1.0)
    assert figures["int8-qat_lost_points_at_0.5x"] == pytest.approx(0.4)
    assert not any(name.startswith("none") for name in figures)


def test_a_loss_is_against_float32_of_the_same_share() -> None:
    assert _lost(rows()[7], rows()) == pytest.approx(0.2)
    assert _lost(rows()[5], rows()) is None


def test_without_data_it_is_skipped() -> None:
    assert main(["--data", "nowhere"]) == EXIT_SKIPPED
