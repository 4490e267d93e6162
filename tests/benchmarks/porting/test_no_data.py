import numpy as np
import pytest

from benchmarks.harness.worker import FILES
from benchmarks.porting.no_data import Ported, balanced_disagreement, figures_of, main


def test_classes_count_equally_however_many_photos_they_have():
    source = np.array([3] * 8 + [5, 5])
    package = np.array([3] * 6 + [5, 1] + [5, 3])
    assert balanced_disagreement(source, package) == pytest.approx((25 + 50) / 2)


def test_results_are_medians_over_the_seeds():
    figures = figures_of([Ported(20.0, 9.0), Ported(30.0, 8.0), Ported(22.0, 12.0)])
    assert figures == {"disagreement": 22.0, "disagreement_with_photos": 9.0}


def test_the_benchmark_is_skipped_without_data(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("MISTIFY_TEST_DATA", raising=False)
    assert main(["--data", str(tmp_path)]) == 77
    assert FILES[0] in "".join(capsys.readouterr().out.split())
