"""How long networks take in LiteRT on this machine."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from mistify.machine import machine
from mistify.package.manifest import MeasuredLatency
from mistify_server.worker.packaging.tflite.runner import Array

#: What a latency is taken from: so many bursts of so many runs, or of so many seconds.
_BURSTS = 10
_BURST_RUNS = 40
_BURST_SECONDS = 0.2
_WARM_UP_RUNS = 5


def measure_latency(
    network: bytes, threads: int = 1, batch: int = 1, signature: str | None = None
) -> MeasuredLatency:
    """Time inferences on this machine, for two seconds at the most where one takes less than 0.2 s.

    Those of a network by its only signature, or else by one of several, which takes Python a little longer.

    Other work on the machine only ever adds to what an inference takes, and comes in spells. So the burst
    with the lowest median tells what the network takes; the median within it leaves out single lucky runs.
    """
    interpreter = Interpreter(model_content=network, num_threads=threads)
    infer = _ready(interpreter, batch) if signature is None else _ready_by(signature, interpreter, batch)
    for _ in range(_WARM_UP_RUNS):
        infer()
    bursts = [_burst(infer) for _ in range(_BURSTS)]
    best = min(bursts, key=statistics.median)
    return MeasuredLatency(
        median_ms=statistics.median(best),
        p95_ms=float(np.quantile(best, 0.95)),
        runs=sum(map(len, bursts)),
        threads=threads,
        machine=machine(),
        runtime=f"ai-edge-litert {version('ai-edge-litert')}",
    )


def _ready(interpreter: Interpreter, batch: int) -> Callable[[], object]:
    """An inference on random inputs."""
    for entry in interpreter.get_input_details():
        interpreter.resize_tensor_input(entry["index"], [batch, *entry["shape"][1:]])
    interpreter.allocate_tensors()
    for entry in interpreter.get_input_details():
        interpreter.set_tensor(entry["index"], _random(entry, batch))
    infer: Callable[[], object] = interpreter.invoke
    return infer


def _ready_by(signature: str, interpreter: Interpreter, batch: int) -> Callable[[], object]:
    """An inference by a signature on random inputs."""
    runner = interpreter.get_signature_runner(signature)
    return partial(
        runner, **{name: _random(entry, batch) for name, entry in runner.get_input_details().items()}
    )


def _random(entry: Mapping[str, Any], batch: int) -> Array:
    shape = (batch, *entry["shape"][1:])
    return np.random.default_rng(0).uniform(size=shape).astype(entry["dtype"])


def _burst(infer: Callable[[], object]) -> list[float]:
    """What each of several runs took, in milliseconds."""
    taken: list[float] = []
    deadline = time.perf_counter() + _BURST_SECONDS
    while len(taken) < _BURST_RUNS and (not taken or time.perf_counter() < deadline):
        start = time.perf_counter()
        infer()
        taken.append((time.perf_counter() - start) * 1e3)
    return taken
