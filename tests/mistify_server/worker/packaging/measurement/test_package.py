"""Latencies on other hardware, estimated from the one that was measured on this machine."""

from dataclasses import replace

import pytest

from executors.structure import analyse
from mistify.costs.catalogue import HOST
from mistify.costs.latency import LatencyModel, RoutineModel, Tile, routine_of, terms_of
from mistify.costs.profiles import device_profile
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.measurement.package import on_all_hardware
from tests.mistify_server.worker.packaging.networks import network


def test_without_other_hardware_there_is_the_host_alone():
    assert on_all_hardware(1.0, analyse(network()).network(), (), Quantization.NONE) == {
        "latency_ms@host": 1.0
    }


def test_an_int8_package_meets_limits_on_the_host_at_int8():
    cost = analyse(network()).network()
    profiles = [HOST, replace(HOST, name="host@int8"), replace(HOST, name="host@dynamic")]
    latencies = on_all_hardware(2.0, cost, profiles, Quantization.INT8)
    assert latencies == {"latency_ms@host": 2.0, "latency_ms@host@int8": 2.0}


def test_a_measured_device_is_not_corrected_by_the_deviation_of_this_machine():
    """A board that starts each operator in one microsecond, whatever the host takes."""
    cost = analyse(network()).network()
    routines = {routine_of(operation): operation for operation in cost.operations}
    figures = {
        routine: RoutineModel(tile=Tile(), figures=(1.0, *[0.0] * (len(terms_of(operation, Tile())) - 1)))
        for routine, operation in routines.items()
    }
    board = device_profile("board", {1: LatencyModel(start=0.0, routines=figures)}, False)
    latencies = on_all_hardware(9.0, cost, [HOST, board], Quantization.NONE)
    assert latencies["latency_ms@board"] == pytest.approx(len(list(cost.operations)) / 1e3)
