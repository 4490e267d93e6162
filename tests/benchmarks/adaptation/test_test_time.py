"""What `adaptation.test_time` measures: a device with a real package, its streams and its figures."""

import numpy as np
import pytest

from benchmarks.adaptation import test_time
from benchmarks.adaptation.packages import RATE, Device, accuracy, memory_ratio
from benchmarks.adaptation.subjects import Subject
from benchmarks.adaptation.test_time import TARGETS, clean_streams, corrupted
from benchmarks.harness.run import EXIT_SKIPPED, run
from mistify_client import load
from mistify_client.runtime.versions import current
from tests.support.adaptable import digits, dirty, make_package, shuffled

IMAGES, CLASSES = digits()
LABELS = CLASSES.astype(np.int64)


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


def subject():
    """Return a subject whose network is not needed, as its package is there."""
    half = len(IMAGES) // 2
    return Subject("digits", None, None, (IMAGES[:half], LABELS[:half]), (IMAGES[half:], LABELS[half:]), 16.0)


def veiled(images, rng):
    return dirty(images)


def test_accuracies_are_per_cent():
    assert accuracy(np.array([1, 2, 3, 3]), [1, 2, 3, 4]) == 75.0


def test_the_observed_network_takes_hardly_more_memory(package):
    assert 1.0 <= memory_ratio(package) < 1.3


def test_time_passes_with_the_images_and_the_current_version_answers(package):
    device = Device(package)
    np.testing.assert_array_equal(device.answers(IMAGES), load(package)(IMAGES).argmax(1))
    before = device.answers(dirty(IMAGES))
    answers = device.stream(dirty(shuffled(IMAGES, 480)))
    assert len(answers) == 480
    assert device.seconds == pytest.approx(480 / RATE)
    assert device.adapted
    assert current(package) != package
    assert (device.answers(dirty(IMAGES)) != before).any()
    assert 1 < device.inferences <= 2
    device.close()


def test_a_corruption_is_followed_and_its_end_is_timed(package):
    order = np.random.default_rng(0).integers(0, len(IMAGES) // 2, 640)
    row = corrupted(subject(), package, veiled, order, 0)
    assert row["settled"] > row["shipped"] + 10
    assert row["shipped"] < row["settled"]
    assert row["shipped_streamed"] < row["streamed"] < row["settled"] + 5
    assert row["installed"] >= 1
    assert 0 < row["restored"] <= 60


def test_without_a_corruption_nothing_is_installed(package, monkeypatch):
    monkeypatch.setattr(test_time, "_OF_CLASS", 160)
    row = corrupted(subject(), package, lambda images, rng: images, np.arange(288), 0)
    assert (row["installed"], row["restored"]) == (0, 0.0)
    assert row["settled"] == row["shipped"]
    figures = clean_streams(subject(), package, np.arange(288), True)
    assert figures["one_class"] == figures["clean"] == figures["sorted"] == 0.0


def test_each_network_has_all_targets_and_a_run_without_data_is_skipped(capsys):
    by_network = {name.partition("_")[0] for name in TARGETS}
    assert by_network == {"resnet8", "mobilenet", "digits"}
    assert len(TARGETS) == 7 * len(by_network)
    argv = ["--network", "resnet8"]
    assert (
        run("adaptation.test_time", TARGETS, test_time.measure, argv, test_time.add_options) == EXIT_SKIPPED
    )
    assert "names no directory" in capsys.readouterr().out
