"""Latencies are measured in a process that a network may crash without affecting others."""

import os
from collections.abc import Sequence

import pytest

from mistify.package.manifest import MeasuredLatency
from mistify_server.worker.packaging.measurement import isolated
from mistify_server.worker.packaging.measurement.isolated import latencies_of, latency_of
from mistify_server.worker.packaging.measurement.latency import measure_latency
from mistify_server.worker.packaging.tflite.isolation import LiteRtError
from tests.support.paths import DATA

TINY = (DATA / "tiny.tflite").read_bytes()

#: A stand-in for a network that crashes the process that measures it.
ENDS = b"ends whoever measures it"


def measure_or_end(network: bytes, *conditions: object) -> MeasuredLatency:
    if network == ENDS:
        os.abort()
    return measure_latency(network)


def measure_all_or_end(networks: Sequence[bytes], threads: int) -> list[MeasuredLatency]:
    return [measure_or_end(network) for network in networks]


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "measure_latency", measure_or_end)
    monkeypatch.setattr(isolated, "measure_latencies", measure_all_or_end)


def test_networks_are_measured_together_with_their_threads() -> None:
    measured = latencies_of({"one": TINY, "other": TINY}, 2)
    assert list(measured) == ["one", "other"]
    assert all(0 < latency.median_ms < 1000 for latency in measured.values())
    assert {latency.threads for latency in measured.values()} == {2}


@pytest.mark.usefixtures("ending")
def test_a_network_that_crashes_litert_has_no_latency_while_others_do() -> None:
    assert list(latencies_of({"ends": ENDS, "runs": TINY})) == ["runs"]
    assert latencies_of({"ends": ENDS}) == {}


@pytest.mark.usefixtures("ending")
def test_a_single_network_that_crashes_litert_is_refused_with_a_fix() -> None:
    with pytest.raises(LiteRtError, match="SIGABRT") as refused:
        latency_of(ENDS)
    (problem,) = refused.value.problems
    assert "another precision" in problem.fix
    assert latency_of(TINY).median_ms > 0


def test_an_invalid_network_is_refused() -> None:
    with pytest.raises(LiteRtError, match="one that LiteRT rejects"):
        latency_of(b"no network at all")
