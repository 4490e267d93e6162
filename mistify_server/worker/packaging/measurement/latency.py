"""The latency of networks in LiteRT on this machine."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from mistify.machine import machine, runtime
from mistify.package.manifest import MeasuredLatency
from mistify.profiling.measuring import random_input
from mistify_server.worker.packaging.tflite.runner import Array

#: Bursts of so many runs, or of so many seconds, are timed until the best few agree: at least so many, for
#: longer than spells of other work last, and no longer than the most.
_BURSTS = 10
_LEAST_SECONDS = 0.4
_BURST_RUNS = 40
_BURST_SECONDS = 0.2
_WARM_UP_RUNS = 5
_AGREEING = 3
_AGREEMENT = 1.03
_MOST_SECONDS = 4.0


def measure_latency(
    network: bytes,
    threads: int = 1,
    batch: int = 1,
    signature: str | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> MeasuredLatency:
    """Time inferences on this machine, for 0.4 to 4 seconds where one takes less than 0.2 s.

    Other work on the machine only ever adds to the time of an inference, and comes in spells. So the burst
    with the lowest median counts, once others come close; the median within it leaves out single lucky runs.

    Args:
        network: A `.tflite`.
        threads: How many LiteRT uses.
        batch: The examples of an inference.
        signature: By which the network runs, which takes Python a little longer; None for its only one.
        clock: In seconds, for how long to go on.
    """
    interpreter = Interpreter(model_content=network, num_threads=threads)
    infer = _ready(interpreter, batch) if signature is None else _ready_by(signature, interpreter, batch)
    for _ in range(_WARM_UP_RUNS):
        infer()
    bursts: list[list[float]] = []
    start, seconds = clock(), 0.0
    while _to_go_on(bursts, seconds):
        bursts.append(_burst(infer))
        seconds = clock() - start
    best = min(bursts, key=statistics.median)
    return MeasuredLatency(
        median_ms=statistics.median(best),
        p95_ms=float(np.quantile(best, 0.95)),
        runs=sum(map(len, bursts)),
        threads=threads,
        machine=machine(),
        runtime=runtime(),
    )


def _ready(interpreter: Interpreter, batch: int) -> Callable[[], object]:
    """Return an inference on random inputs."""
    for entry in interpreter.get_input_details():
        interpreter.resize_tensor_input(entry["index"], [batch, *entry["shape"][1:]])
    interpreter.allocate_tensors()
    for entry in interpreter.get_input_details():
        interpreter.set_tensor(entry["index"], _random(entry, batch))
    infer: Callable[[], object] = interpreter.invoke
    return infer


def _ready_by(signature: str, interpreter: Interpreter, batch: int) -> Callable[[], object]:
    """Return an inference by a signature on random inputs."""
    runner = interpreter.get_signature_runner(signature)
    return partial(
        runner, **{name: _random(entry, batch) for name, entry in runner.get_input_details().items()}
    )


def _random(entry: Mapping[str, Any], batch: int) -> Array:
    return random_input((batch, *entry["shape"][1:]), entry["dtype"])


def _to_go_on(bursts: Sequence[Sequence[float]], seconds: float) -> bool:
    """Return whether bursts that took so long are too few, or too unlike."""
    if len(bursts) < _BURSTS or seconds < _LEAST_SECONDS:
        return True
    return seconds < _MOST_SECONDS and not _agree(bursts)


def _agree(bursts: Sequence[Sequence[float]]) -> bool:
    """Return whether the best few bursts have nearly the same median."""
    best, *_, last = sorted(map(statistics.median, bursts))[:_AGREEING]
    return last <= _AGREEMENT * best


def _burst(infer: Callable[[], object]) -> list[float]:
    """Return the time of each of several runs, in milliseconds."""
    times: list[float] = []
    deadline = time.perf_counter() + _BURST_SECONDS
    while len(times) < _BURST_RUNS and (not times or time.perf_counter() < deadline):
        start = time.perf_counter()
        infer()
        times.append((time.perf_counter() - start) * 1e3)
    return times
