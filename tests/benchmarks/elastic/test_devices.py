"""The data of devices, and the evaluation of their choices."""

import numpy as np
import pytest

from benchmarks.elastic.devices import Gain, evenly_divided, figures_of, main, rows_of_a_device
from benchmarks.harness.worker import TRAIN

CLASSES = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 350))


def test_search_images_and_held_out_images_are_disjoint():
    for seed in range(30):
        searched, held_out = rows_of_a_device(CLASSES, np.random.default_rng(seed))
        rows = [*searched, *held_out]
        assert len(rows) == len(set(rows)) <= 1_005  # the size of each class is rounded
        assert 100 <= len(searched) <= 200
        assert len(held_out) >= len(searched)


def test_most_images_of_a_device_belong_to_few_classes():
    shares = []
    for seed in range(200):
        counts = np.bincount(CLASSES[np.concatenate(rows_of_a_device(CLASSES, np.random.default_rng(seed)))])
        shares.append(np.sort(counts)[-2:].sum() / counts.sum())
    assert np.median(shares) > 0.8


def test_both_parts_have_the_same_classes():
    searched, held_out = rows_of_a_device(CLASSES, np.random.default_rng(1))
    shares = [np.bincount(CLASSES[rows], minlength=10) / len(rows) for rows in (searched, held_out)]
    assert np.abs(shares[0] - shares[1]).max() < 0.15


def test_balanced_images_cover_all_classes_and_belong_to_no_device():
    evenly, others = evenly_divided(CLASSES, np.random.default_rng(0))
    assert np.bincount(CLASSES[evenly]).tolist() == [50] * 10
    assert sorted([*evenly, *others]) == list(range(len(CLASSES)))


def test_results_are_medians_over_seeds_of_means_over_devices():
    runs = [
        [Gain(own=points, evenly=0.5, fetched=points - 0.25, server=50.0, images=300) for points in own]
        for own in ((1.0, -1.0), (3.0, 0.0), (4.0, 4.0))
    ]
    figures = figures_of(runs)
    assert figures["devices_better_of_ten"] == pytest.approx(5.0)
    assert figures["points_gained"] == pytest.approx(1.5)
    assert figures["points_gained_evenly"] == pytest.approx(0.5)
    assert figures["points_lost_by_fetching_less"] == pytest.approx(0.25)
    assert figures["devices_better_than_evenly_of_ten"] == pytest.approx(5.0)
    assert figures["least_gained"] == -1.0


def test_the_benchmark_is_skipped_without_data(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("MISTIFY_TEST_DATA", raising=False)
    assert main(["--data", str(tmp_path)]) == 77
    assert TRAIN in "".join(capsys.readouterr().out.split())
