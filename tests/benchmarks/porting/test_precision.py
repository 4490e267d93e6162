"""The results of the comparison of precisions."""

import pytest

from benchmarks.harness.run import EXIT_SKIPPED
from benchmarks.harness.worker import Packaged
from benchmarks.porting.precision import SHARES, TARGETS, Row, figures_of, lost_by, main
from mistify.costs.quantization import Quantization

ACCURACIES = {"none": 0.80, "float16": 0.80, "dynamic": 0.798, "int8": 0.79}
TRAINED_ON = {"none": 0.81, "int8-qat": 0.804}


def rows() -> list[Row]:
    return [
        Row(share, Quantization(name), package(accuracy - (1 - share) / 10), trained_on)
        for share in SHARES
        for trained_on, accuracies in ((False, ACCURACIES), (True, TRAINED_ON))
        for name, accuracy in accuracies.items()
    ]


def package(accuracy: float) -> Packaged:
    return Packaged(accuracy, accuracy**2, 100, 100.0, 0.1, "")


def test_every_target_has_a_result() -> None:
    figures = figures_of(rows())
    assert set(TARGETS) <= set(figures)
    assert figures["int8_lost_points_at_1x"] == pytest.approx(1.0)
    assert figures["trained_on_gained_points_at_0.5x"] == pytest.approx(1.0)
    assert figures["halving_validation_lost_points"] == pytest.approx(100 * (0.8**2 - 0.75**2))
    assert not any(name.startswith("none") for name in figures)


def test_training_for_int8_is_compared_with_as_much_training_in_float32() -> None:
    assert figures_of(rows())["int8-qat_lost_points_at_0.5x"] == pytest.approx(0.6)


def test_a_loss_is_relative_to_float32_at_the_same_share() -> None:
    half = [row for row in rows() if row.share == 0.5]
    assert lost_by(half[2], rows()).test == pytest.approx(0.2)
    assert lost_by(half[2], rows()).validation == pytest.approx(100 * (0.75**2 - 0.748**2))


def test_the_benchmark_is_skipped_without_data() -> None:
    assert main(["--data", "nowhere"]) == EXIT_SKIPPED
