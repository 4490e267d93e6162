"""Latencies that are predicted from those of ten slices, against slices whose latency is a known function."""

import numpy as np
import pytest
from pydantic import ValidationError

from mistify.package.factory import FactoryStore
from mistify.package.opened import Package
from mistify_client.slicing import latencies
from mistify_client.slicing.latencies import SliceLatencies, measured_latency, slice_latencies
from tests.support.factories import make_package

CONDITIONS = {"supernet": "0" * 64, "machine": "a", "runtime": "b", "threads": 1}


def table(widths, latency):
    return SliceLatencies(
        **CONDITIONS, widths=tuple(widths), latencies_ms=tuple(float(latency(one)) for one in widths)
    )


def drawn(units, count, seed):
    rng = np.random.default_rng(seed)
    return [
        tuple(units),
        *(tuple(int(rng.integers(1, most + 1)) for most in units) for _ in range(count - 1)),
    ]


def test_latencies_that_are_linear_in_the_widths_are_found():
    units, per_unit = (32, 64, 96, 96), np.array([0.004, 0.002, 0.003, 0.0002])

    def latency(widths):
        return 0.2 + per_unit @ np.array(widths)

    predict = table(drawn(units, 10, 0), latency).predictor()
    others = drawn(units, 50, 1)
    errors = [abs(predict(one) / latency(one) - 1) for one in others]
    assert np.median(errors) < 0.02
    assert max(errors) < 0.06


def test_many_groups_are_thought_to_be_alike():
    units = (16,) * 25

    def latency(widths):
        return 0.1 + 0.01 * sum(widths)

    predict = table(drawn(units, 10, 0), latency).predictor()
    errors = [abs(predict(one) / latency(one) - 1) for one in drawn(units, 50, 1)]
    assert max(errors) < 0.01


def test_no_prediction_is_far_below_what_was_measured():
    predict = table([(10, 10), (1, 10), (10, 1)], lambda widths: float(sum(widths) - 10)).predictor()
    assert predict((1, 1)) == pytest.approx(0.5)


def test_widths_have_one_latency_each():
    with pytest.raises(ValidationError, match="one latency, and as many widths"):
        SliceLatencies(**CONDITIONS, widths=((1, 2), (2, 2)), latencies_ms=(1.0,))
    with pytest.raises(ValidationError, match="one latency, and as many widths"):
        SliceLatencies(**CONDITIONS, widths=((1, 2), (2,)), latencies_ms=(1.0, 2.0))


def test_the_slices_that_are_measured_go_from_the_least_units_to_all(tmp_path):
    package = Package.open(make_package(tmp_path / "package"))
    store = FactoryStore.of(package)
    network = store.map_supernet(package.directory)
    found = slice_latencies(store, network, tmp_path, 1, seconds=1e-4, on_progress=lambda line: None)
    assert found.widths[:2] == ((24, 16), (1, 1))
    assert found.whole_ms == found.latencies_ms[0] > 0
    assert len(set(found.widths)) > 8
    assert all(
        1 <= width <= group.units
        for one in found.widths
        for width, group in zip(one, store.groups, strict=True)
    )


def test_the_latency_of_a_slice_has_its_conditions(tmp_path):
    network = make_package(tmp_path / "package") / "serve.tflite"
    latency = measured_latency(network, 1, 1e-3)
    assert 0 < latency.median_ms <= latency.p95_ms
    assert (latency.threads, latency.runs) == (1, 50)


@pytest.mark.parametrize(
    ("rounds", "most_ms", "expected"),
    [
        ([1.1, 0.9], 1.0, 0.9),
        ([1.1, 1.2], 1.0, 1.1),
        ([1.3, 0.9], 1.0, 1.3),
        ([1.0, 0.9], 1.0, 1.0),
        ([1.1, 0.9], None, 1.1),
    ],
)
def test_a_slice_that_is_slightly_too_slow_is_measured_longer(
    tmp_path, monkeypatch, rounds, most_ms, expected
):
    """Other load may be the reason, but not if it is far too slow."""
    network = make_package(tmp_path / "package") / "serve.tflite"
    budgets, left = [], iter(rounds)

    def best_ms(load, seconds):
        budgets.append(seconds)
        return next(left)

    monkeypatch.setattr(latencies, "best_ms", best_ms)
    assert measured_latency(network, 1, 1e-3, most_ms).median_ms == expected
    again = most_ms is not None and most_ms < rounds[0] < 1.2
    assert [seconds > 1e-3 for seconds in budgets] == [False, True][: 1 + again]
