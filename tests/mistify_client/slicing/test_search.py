"""The choice among slices whose latency is not quite what was predicted."""

from pathlib import Path

import numpy as np
import pytest

from mistify.package.manifest import MeasuredLatency
from mistify.tflite.slicing import OpenUnits
from mistify_client.slicing.candidates import SliceCandidate
from mistify_client.slicing.search import CutSlice, MadeSlice, SliceLimits, best_slice


def candidate(widths, quality):
    return SliceCandidate(sum(widths) / 10, quality, tuple(OpenUnits(np.arange(width)) for width in widths))


#: The best one is neither the smallest nor the largest.
CANDIDATES = [
    candidate([width], quality) for width, quality in ((1, 0.6), (3, 0.8), (5, 0.9), (7, 0.85), (9, 0.8))
]


#: Slices of two groups, none of which is wider than another one in both; a unit of the second is larger.
CROSSING = [candidate(widths, sum(widths) / 20) for widths in ((6, 3), (8, 2), (2, 4))]


class Device:
    """Every slice takes some times as long as predicted, which is a millisecond for each unit.

    A unit takes a hundred bytes, and one of the second group a thousand.
    """

    def __init__(self, slower=1.0):
        self.slower, self.cuts, self.measurements = slower, [], []

    def cut(self, one):
        self.cuts.append(one.widths)
        memory = sum(size * width for size, width in zip((100, 1000), one.widths, strict=False))
        return CutSlice(one, Path(), float(memory))

    def measured(self, one):
        self.measurements.append(one.candidate.widths)
        ms = self.slower * sum(one.candidate.widths)
        latency = MeasuredLatency(median_ms=ms, p95_ms=ms, runs=1, threads=1, machine="a", runtime="b")
        return MadeSlice(one.candidate, one.network, one.memory_bytes, latency)

    def best(self, candidates=CANDIDATES, **limits):
        predicted_ms = {one: float(sum(one.widths)) for one in candidates}
        return best_slice(SliceLimits(**limits), predicted_ms, self.cut, self.measured)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 5),
        ({"latency_ms": 100.0}, 5),
        ({"latency_ms": 4.0}, 3),
        ({"latency_ms": 3.0}, 3),
        ({"latency_ms": 2.9}, 1),
        ({"memory_bytes": 350.0}, 3),
        ({"latency_ms": 100.0, "memory_bytes": 100.0}, 1),
    ],
)
def test_the_best_one_within_the_limits_is_taken(limits, expected):
    assert Device().best(**limits).candidate.widths == (expected,)


def test_one_that_fits_is_the_only_one_that_is_made():
    device = Device()
    device.best(latency_ms=6.0)
    assert device.cuts == device.measurements == [(5,)]


def test_a_slow_one_corrects_the_predictions_of_the_others():
    device = Device(slower=2.0)
    assert device.best(latency_ms=5.5).candidate.widths == (1,)
    assert device.measurements == [(5,), (1,)]


def test_the_smallest_one_is_made_where_none_fits():
    device = Device()
    assert device.best(latency_ms=0.1).candidate.widths == (1,)
    assert device.measurements == [(1,)]


def test_one_that_takes_too_much_memory_is_not_measured():
    device = Device()
    assert device.best(memory_bytes=350.0).candidate.widths == (3,)
    assert device.cuts == [(5,), (3,)]
    assert device.measurements == [(3,)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"memory_bytes": 3000.0}, (8, 2)),
        ({"latency_ms": 8.0}, (2, 4)),
        ({"latency_ms": 9.0, "memory_bytes": 3600.0}, (6, 3)),
    ],
)
def test_one_is_found_although_it_has_more_units_of_a_group_than_one_that_does_not_fit(limits, expected):
    made = Device().best(CROSSING, **limits)
    assert made.candidate.widths == expected
    assert made.fits(SliceLimits(**limits))


def test_where_memory_is_too_small_for_all_the_least_is_known():
    device = Device()
    made = device.best(CROSSING, memory_bytes=2000.0)
    assert not made.fits(SliceLimits(memory_bytes=2000.0))
    assert made.memory_bytes == 2800.0
    assert device.cuts[-1] == (8, 2)
