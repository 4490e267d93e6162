"""The results of predicting latency are those of the worst setting."""

import pytest

from benchmarks.latency.prediction import Row, figures_of

#: Predictions for four networks that take 1 to 4 ms.
GOOD = (1.0, 2.0, 3.0, 4.0)
TURNED = (1.5, 1.0, 3.0, 4.4)


def rows(integer: bool, threads: int, predicted: tuple[float, ...]) -> list[Row]:
    return [Row("family", integer, threads, ms, number) for number, ms in enumerate(predicted, 1)]


def test_the_worst_setting_counts() -> None:
    figures = figures_of([*rows(False, 1, GOOD), *rows(True, 2, TURNED)])
    assert figures["worst_median_error"] == pytest.approx((0.1 + 0.5) / 2)
    assert figures["worst_p90_error"] == pytest.approx(0.5)
    # One of six pairs is in the wrong order.
    assert figures["worst_kendall_tau"] == pytest.approx(4 / 6)


def test_perfect_predictions_have_no_error() -> None:
    figures = figures_of(rows(False, 1, GOOD))
    assert figures == {"worst_median_error": 0.0, "worst_p90_error": 0.0, "worst_kendall_tau": 1.0}
