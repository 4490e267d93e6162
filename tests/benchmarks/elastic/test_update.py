"""When a slowed-down device counts as recovered, and packages with random weights."""

import pytest

from benchmarks.elastic.packages import Size, write_package
from benchmarks.elastic.update import Inference, Update, update_of
from mistify.parsing.quantities import parse_time
from mistify_client.subnets.search_session import adapt

CHANGED = 100.0


def inferences(*latencies_ms):
    """Return consecutive inferences since the change."""
    ends = [CHANGED + sum(latencies_ms[: number + 1]) / 1e3 for number in range(len(latencies_ms))]
    return [Inference(end - ms / 1e3, end) for ms, end in zip(latencies_ms, ends, strict=True)]


def test_a_device_has_recovered_from_the_first_inference_within_the_target():
    ran = inferences(40, 40, 40, 8, 9, 8, 9, 8)
    update = update_of(ran, CHANGED, [CHANGED - 1, CHANGED + 0.05], 10)
    assert update == pytest.approx(Update(128, 78))


def test_a_single_fast_inference_is_not_enough():
    ran = inferences(40, 8, 40, 40, 40, 8, 9, 8, 9, 8)
    assert update_of(ran, CHANGED, [], 10).recovery_ms == pytest.approx(176)
    assert update_of(ran[:9], CHANGED, [], 10) is None


def test_the_last_decision_before_the_recovery_counts():
    ran = inferences(40, 40, 8, 9, 8, 9, 8)
    update = update_of(ran, CHANGED, [CHANGED + 0.01, CHANGED + 0.06, CHANGED + 0.1], 10)
    assert update.switch_ms == pytest.approx(28)


def test_a_package_with_random_weights_can_be_adapted(tmp_path):
    data = write_package(tmp_path / "package", Size(2, 8, 8), 20)
    entries = adapt(tmp_path / "package", data, parse_time("1x")).pool.entries
    assert "serve.tflite" in [file for entry in entries for file in entry.files]
