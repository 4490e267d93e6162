"""Latencies on other hardware, estimated from the one that was measured on this machine."""

from dataclasses import replace

import pytest

from executors.structure import analyse
from mistify.costs.catalogue import HOST
from mistify.costs.latency import LatencyModel, RoutineModel, Tile, routine_of, terms_of
from mistify.costs.profiles import NominalProfile, device_profile
from mistify.costs.quantization import Quantization
from mistify.package.manifest import MeasuredLatency
from mistify_server.worker.packaging.measurement.package import on_all_hardware
from tests.mistify_server.worker.packaging.networks import network


def latency(median_ms: float, threads: int = 1) -> MeasuredLatency:
    return MeasuredLatency(
        median_ms=median_ms, p95_ms=median_ms, runs=1, threads=threads, machine="x86_64", runtime="LiteRT"
    )


def test_without_other_hardware_there_is_the_host_alone():
    assert on_all_hardware(latency(1.0), analyse(network()).network(), (), Quantization.NONE) == {
        "latency_ms@host": 1.0
    }


def test_an_int8_package_meets_limits_on_the_host_at_int8():
    cost = analyse(network()).network()
    profiles = [HOST, replace(HOST, name="host@int8"), replace(HOST, name="host@dynamic")]
    latencies = on_all_hardware(latency(2.0), cost, profiles, Quantization.INT8)
    assert latencies == {"latency_ms@host": 2.0, "latency_ms@host@int8": 2.0}


def test_other_hardware_runs_a_package_with_as_many_threads():
    """With four, this machine takes half of what its profile for that says, and so does the other."""
    cost = analyse(network()).network()
    four, pi = HOST.with_threads(4), NominalProfile("pi", 5.0, 1.0)
    profiles = [HOST.slower(3.0), four, pi, pi.with_threads(4)]
    taken = latency(four.latency_ms(cost) / 2, threads=4)
    assert on_all_hardware(taken, cost, profiles, Quantization.INT8) == {
        "latency_ms@host@4-threads": taken.median_ms,
        "latency_ms@host@4-threads@int8": taken.median_ms,
        "latency_ms@pi@4-threads": pytest.approx(pi.latency_ms(cost) / 2),
    }


def test_a_measured_device_is_not_corrected_by_the_deviation_of_this_machine():
    """A board that starts each operator in one microsecond, whatever the host takes."""
    cost = analyse(network()).network()
    routines = {routine_of(operation): operation for operation in cost.operations}
    figures = {
        routine: RoutineModel(tile=Tile(), figures=(1.0, *[0.0] * (len(terms_of(operation, Tile())) - 1)))
        for routine, operation in routines.items()
    }
    board = device_profile("board", LatencyModel(start=0.0, routines=figures), False)
    latencies = on_all_hardware(latency(9.0), cost, [HOST, board], Quantization.NONE)
    assert latencies["latency_ms@board"] == pytest.approx(len(list(cost.operations)) / 1e3)
