"""The choice among slices whose latency is not quite what was predicted."""

import numpy as np
import pytest

from mistify.package.manifest import MeasuredLatency
from mistify.tflite.slicing import OpenUnits
from mistify_client.slicing.candidates import SliceCandidate
from mistify_client.slicing.search import MadeSlice, SliceLimits, best_slice


def candidate(width, quality):
    return SliceCandidate(width / 10, quality, (OpenUnits(np.arange(width)),))


#: The best one is neither the smallest nor the largest.
CANDIDATES = [
    candidate(width, quality) for width, quality in ((1, 0.6), (3, 0.8), (5, 0.9), (7, 0.85), (9, 0.8))
]


class Device:
    """Every slice takes some times as long as predicted, which is a millisecond for each unit."""

    def __init__(self, slower=1.0):
        self.slower, self.made = slower, []

    def make(self, one):
        (width,) = one.widths
        self.made.append(width)
        ms = self.slower * width
        latency = MeasuredLatency(median_ms=ms, p95_ms=ms, runs=1, threads=1, machine="a", runtime="b")
        return MadeSlice(one, b"", latency, 100.0 * width)

    def best(self, **limits):
        found = best_slice(CANDIDATES, SliceLimits(**limits), lambda one: float(one.widths[0]), self.make)
        return found.candidate.widths[0]


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
    assert Device().best(**limits) == expected


def test_one_that_fits_is_the_only_one_that_is_made():
    device = Device()
    device.best(latency_ms=6.0)
    assert device.made == [5]


def test_a_slow_one_corrects_the_predictions_of_the_others():
    device = Device(slower=2.0)
    assert device.best(latency_ms=5.5) == 1
    assert device.made == [5, 1]


def test_the_smallest_one_is_made_where_none_fits():
    device = Device()
    assert device.best(latency_ms=0.1) == 1
    assert device.made == [1]
