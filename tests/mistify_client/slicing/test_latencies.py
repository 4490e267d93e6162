"""Latencies that are predicted from those of ten slices, against slices whose latency is a known function."""

from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from pydantic import ValidationError

from mistify.package.factory import FactoryStore
from mistify.package.opened import Package
from mistify_client.slicing import latencies
from mistify_client.slicing.latencies import (
    SliceLatencies,
    measured_latency,
    relative_latency,
    slice_latencies,
)
from mistify_client.slicing.products import CutChannels, SlicedProduct
from tests.support.factories import make_package
from tests.support.paths import DATA

CONDITIONS = {"supernet": "0" * 64, "machine": "a", "runtime": "b", "threads": 1}


def chain(units):
    """The products of a chain of convolutions, each of which makes a group."""
    made = [CutChannels(whole=count, per_unit={group: 1}) for group, count in enumerate(units)]
    ends = [CutChannels(whole=3), *made, CutChannels(whole=10)]
    return [SlicedProduct(positions=9 * 64, inputs=read, outputs=own) for read, own in pairwise(ends)]


def table(widths, latency, products=()):
    return SliceLatencies(
        **CONDITIONS,
        products=tuple(products),
        widths=tuple(widths),
        latencies_ms=tuple(float(latency(one)) for one in widths),
    )


def drawn(units, count, seed):
    rng = np.random.default_rng(seed)
    return [
        tuple(units),
        *(tuple(int(rng.integers(1, most + 1)) for most in units) for _ in range(count - 1)),
    ]


def errors_of(measured, latency):
    """The errors of predictions for other slices."""
    others = drawn(measured.widths[0], 50, 1)
    actual = np.array([latency(one) for one in others])
    return np.abs(measured.predicted_ms(others) / actual - 1)


@pytest.mark.parametrize("tile", [1, 8, 16])
def test_a_device_that_computes_in_tiles_is_predicted(tile):
    """A convolution takes up to a quarter longer or shorter than the others for the same work."""
    units, speeds = (32, 64, 96, 96), (0.8, 1.2, 1.0, 1.25, 0.9)

    def latency(widths):
        channels = (3, *widths, 10)
        filled = [tile * ceil(channel / tile) for channel in channels]
        return 0.2 + sum(
            1e-4 * speed * read * made
            for speed, read, made in zip(speeds, channels, filled[1:], strict=False)
        )

    errors = errors_of(table(drawn(units, 10, 0), latency, chain(units)), latency)
    assert np.median(errors) < 0.03
    assert max(errors) < 0.12


def test_noise_in_the_measurements_is_not_learnt():
    units = (16,) * 8

    def latency(widths):
        return 0.1 + 0.01 * sum(read * made for read, made in pairwise((3, *widths, 10)))

    rng = np.random.default_rng(2)
    measured = table(drawn(units, 10, 0), lambda widths: latency(widths) * rng.normal(1, 0.05), chain(units))
    assert np.median(errors_of(measured, latency)) < 0.06


def test_groups_without_a_known_product_are_predicted_by_their_units():
    units = (32, 64)

    def latency(widths):
        return 0.2 + 0.01 * widths[0] + 0.02 * widths[1]

    assert np.median(errors_of(table(drawn(units, 10, 0), latency), latency)) < 0.1


def test_no_prediction_is_far_below_what_was_measured():
    measured = table([(10, 10), (1, 10), (10, 1)], lambda widths: float(sum(widths) - 10))
    assert measured.predicted_ms([(1, 1)]).tolist() == [pytest.approx(0.5)]


def test_widths_have_one_latency_each():
    with pytest.raises(ValidationError, match="one latency, and as many widths"):
        SliceLatencies(**CONDITIONS, widths=((1, 2), (2, 2)), latencies_ms=(1.0,))
    with pytest.raises(ValidationError, match="one latency, and as many widths"):
        SliceLatencies(**CONDITIONS, widths=((1, 2), (2,)), latencies_ms=(1.0, 2.0))
    with pytest.raises(ValidationError, match="a group that the slices do not have"):
        SliceLatencies(**CONDITIONS, products=chain((1, 2, 3)), widths=((1, 2),), latencies_ms=(1.0,))


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


@pytest.mark.parametrize(
    ("first_ms", "measured", "expected"),
    [
        ([9.0, 8.9], 2, 8.9),
        ([9.0, 8.0, 7.9], 3, 7.9),
        ([9.0, 9.5], 2, 9.0),
        ([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0], 6, 4.0),
    ],
)
def test_slices_are_measured_until_their_latencies_have_settled(
    tmp_path, monkeypatch, first_ms, measured, expected
):
    package = Package.open(make_package(tmp_path / "package"))
    store, times = FactoryStore.of(package), iter(first_ms)

    def best_of_parts_ms(loads, seconds):
        assert seconds == pytest.approx(0.5 * len(loads))
        return [np.array([next(times)]), *(np.array([1.0]) for _ in loads[1:])]

    monkeypatch.setattr(latencies, "best_of_parts_ms", best_of_parts_ms)
    network = store.map_supernet(package.directory)
    found = slice_latencies(store, network, tmp_path, 1, seconds=0.5, on_progress=lambda line: None)
    assert found.latencies_ms == (expected, *[1.0] * 9)
    assert len(list(times)) == len(first_ms) - measured


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


@pytest.mark.parametrize("threads", [1, 2])
def test_a_latency_is_relative_to_that_of_another_network(threads):
    """One network needs a hundred times as much computation."""
    slow, fast = DATA / "tiny_slow.tflite", DATA / "tiny.tflite"
    assert relative_latency(slow, fast.read_bytes(), threads, 1e-3) > 5
    assert relative_latency(fast, slow, threads, 1e-3) < 0.2
