"""Measuring latency: bursts slowed down by other work, and outliers that are too fast, do not count."""

import statistics
from itertools import count

import keras
import pytest

from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement import latency
from mistify_server.worker.packaging.measurement.contention import ContentionProbe
from mistify_server.worker.packaging.measurement.latency import (
    measure_latency,
    measure_together,
)

QUIET, SLOW = 1e-6, 1.6e-6


class ScriptedProbe(ContentionProbe):
    """A probe whose loop takes the given seconds in turn, then always the last value."""

    def __init__(self, *seconds):
        super().__init__()
        self._seconds = iter(seconds)
        self._last = seconds[-1]
        self._least_seconds = QUIET

    def seconds(self):
        return next(self._seconds, self._last)


@pytest.fixture(scope="module")
def network():
    inputs = keras.Input((4,))
    return convert(keras.Model(inputs, keras.layers.Dense(2)(inputs)))


@pytest.fixture
def burst_ms(monkeypatch):
    """Script the latencies of bursts, each a second on the clock; return the list and the clock."""
    times = []
    seconds = iter(range(1000))

    def timed(infer, probe):
        infer()
        return latency._Burst([times.pop(0)] * 3, probe.seconds())

    monkeypatch.setattr(latency, "_burst", timed)
    monkeypatch.setattr(latency, "_MOST_SECONDS", 40.0)
    return times, lambda: float(next(seconds))


def test_slowed_down_bursts_do_not_count(network, burst_ms):
    times, clock = burst_ms
    # Other work slows down all bursts equally: slow bursts agree, and measuring waits until it ends.
    times += [1.5] * 12 + [1.0, 1.01, 1.02] + [0.9]
    probe = ScriptedProbe(*[SLOW] * 12, QUIET)
    measured = measure_latency(network, clock=clock, probe=probe)
    assert measured.median_ms == 1.0
    assert measured.runs == 3 * 15
    assert times == [0.9]


def test_single_fast_outliers_do_not_count(network, burst_ms):
    times, _ = burst_ms
    times += [*[1.02] * 50, 0.8, *[1.02] * 48, 1.0, 0.1]
    clock = count(step=0.004).__next__
    assert measure_latency(network, clock=clock, probe=ScriptedProbe(QUIET)).median_ms == 1.0
    assert times == [0.1]


def test_the_fastest_burst_counts_once_others_come_close(network, burst_ms):
    times, clock = burst_ms
    times += [9.0, 5.0, 4.0, *[8.0] * 7, 4.1, 4.2, 4.11, 0.1]
    measured = measure_latency(network, clock=clock, probe=ScriptedProbe(QUIET))
    assert (measured.median_ms, measured.runs) == (4.0, 39)


def test_measuring_ends_even_if_bursts_never_agree(network, burst_ms):
    times, _ = burst_ms
    times += [9.0, 5.0, 4.0, *[8.0] * 7]
    measured = measure_latency(network, clock=count(step=10).__next__, probe=ScriptedProbe(QUIET))
    assert (measured.median_ms, measured.runs) == (4.0, 30)


def test_a_short_disturbance_does_not_count_although_its_bursts_agree(network, burst_ms):
    """The first 25 of 40 bursts of 10 ms are disturbed in a way that the probe does not detect."""
    times, _ = burst_ms
    times += [*[7.0] * 25, *[4.0] * 15]
    measured = measure_latency(network, clock=count(step=0.01).__next__, probe=ScriptedProbe(QUIET))
    assert (measured.median_ms, measured.runs) == (4.0, 120)


def test_the_fastest_burst_counts_if_all_were_slowed_down(network, burst_ms):
    times, clock = burst_ms
    times += [1.5, 1.4, *[1.5] * 60]
    assert measure_latency(network, clock=clock, probe=ScriptedProbe(SLOW)).median_ms == 1.4


def test_earlier_bursts_are_judged_by_the_pace_measured_later(network, burst_ms):
    class Settling(ScriptedProbe):
        def seconds(self):
            taken = super().seconds()
            self._least_seconds = min(self._least_seconds, taken)
            return taken

    times, clock = burst_ms
    times += [*[1.4] * 9, 1.0, 1.0, 1.0, 0.1]
    probe = Settling(*[SLOW] * 9, QUIET)
    probe._least_seconds = float("inf")
    assert measure_latency(network, clock=clock, probe=probe).median_ms == 1.0


def test_networks_measured_together_alternate_until_each_has_settled(monkeypatch):
    """A disturbance of the first bursts affects all networks equally, but each still gets its own latency."""
    turns = []

    def timed(infer, probe):
        name = infer()
        turns.append(name)
        spell = 2 if len(turns) <= 12 else 1
        return latency._Burst([spell * {"small": 1.0, "large": 3.0}[name]] * 3, probe.seconds())

    monkeypatch.setattr(latency, "_burst", timed)
    inferences = [lambda: "small", lambda: "large"]
    measured = measure_together(inferences, clock=count(step=0.03).__next__, probe=ScriptedProbe(QUIET))
    assert [one.median_ms for one in measured] == [1.0, 3.0]
    assert turns == ["small", "large"] * 10


def test_the_minimum_time_of_the_loop_is_kept():
    probe = ContentionProbe()
    taken = [probe.seconds() for _ in range(20)]
    assert not probe.slowed(min(taken))
    assert probe.slowed(1.2 * min(taken))
    assert statistics.median(taken) < 0.01
