"""Latency of networks, measured in a separate LiteRT process, so that only that process can crash."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

from mistify.package.manifest import MeasuredLatency
from mistify_server.worker.packaging.measurement.latency import measure_latencies, measure_latency
from mistify_server.worker.packaging.tflite.isolation import LiteRtError, in_litert

Key = TypeVar("Key")


def latency_of(
    network: bytes, threads: int = 1, batch: int = 1, signature: str | None = None
) -> MeasuredLatency:
    """Return the latency of a network. See `measure_latency` for the arguments.

    Raises:
        LiteRtError: LiteRT cannot run the network.
    """
    return in_litert(measure_latency, network, threads, batch, signature)


def latencies_of(networks: Mapping[Key, bytes], threads: int = 1) -> dict[Key, MeasuredLatency]:
    """Return the latencies of networks that are measured together, omitting those that LiteRT cannot run.

    Args:
        networks: Key -> content of a `.tflite`.
        threads: Number of LiteRT threads.
    """
    try:
        measured = in_litert(measure_latencies, list(networks.values()), threads)
    except LiteRtError:
        return _one_by_one(networks, threads)
    return dict(zip(networks, measured, strict=True))


def _one_by_one(networks: Mapping[Key, bytes], threads: int) -> dict[Key, MeasuredLatency]:
    measured = {}
    for key, network in networks.items():
        with suppress(LiteRtError):
            measured[key] = latency_of(network, threads)
    return measured
