"""Measurement of network latency in LiteRT on this machine, within this process (see also `isolated`)."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mistify.litert import Interpreter
from mistify.machine import machine, runtime
from mistify.package.manifest import MeasuredLatency
from mistify.profiling.measuring import random_input
from mistify_server.worker.packaging.measurement.contention import ContentionProbe

#: Bursts, limited in runs and seconds, are timed until a few undisturbed ones agree. There is a minimum
#: number of bursts, and a minimum time that outlasts short spells of other work.
_BURSTS = 10
_LEAST_SECONDS = 0.4
_BURST_RUNS = 40
_BURST_SECONDS = 0.2
_WARM_UP_RUNS = 5
_AGREEING = 3
_AGREEMENT = 1.03

#: Share of lucky bursts to ignore: of 300 bursts of a tiny network, one or two took 4 % less than the next.
_LUCKY = 0.01
_MOST_SECONDS = 8.0

#: A single probe per process: the loop's best time improves with every measurement.
_PROBE = ContentionProbe()


class _Burst(NamedTuple):
    """The milliseconds of each run, and the longer of the probe's loops before and after the runs."""

    times: Sequence[float]
    loop_seconds: float

    @property
    def median_ms(self) -> float:
        return statistics.median(self.times)


def measure_latency(
    network: bytes,
    threads: int = 1,
    batch: int = 1,
    signature: str | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
    probe: ContentionProbe = _PROBE,
) -> MeasuredLatency:
    """Time inferences on this machine, for 0.4 to 8 seconds if one takes less than 0.2 s.

    Other work on the machine can only lengthen an inference, and comes in spells. So bursts slowed down by it
    are discarded. Of the others, the burst with the lowest median counts, once a few are close to it; the
    median within the burst ignores single lucky runs. If all bursts were slowed down, the best one counts.

    Args:
        network: A `.tflite`.
        threads: Number of threads of LiteRT.
        batch: Number of examples per inference.
        signature: The signature to run, which has a small overhead in Python; None for the only one.
        clock: Returns seconds, for the time limits.
        probe: Detects other work that slows this machine down.
    """
    infer = inference_of(network, threads, batch, signature)
    return measure_together([infer], threads, clock=clock, probe=probe)[0]


def measure_latencies(networks: Sequence[bytes], threads: int = 1) -> list[MeasuredLatency]:
    """Time inferences of several networks, each a `.tflite`, like `measure_together`."""
    return measure_together([inference_of(network, threads) for network in networks], threads)


def inference_of(
    network: bytes, threads: int = 1, batch: int = 1, signature: str | None = None
) -> Callable[[], object]:
    """Return a warmed-up inference on random inputs; the arguments are those of `measure_latency`."""
    interpreter = Interpreter(model_content=network, num_threads=threads)
    infer = _ready(interpreter, batch) if signature is None else _ready_by(signature, interpreter, batch)
    for _ in range(_WARM_UP_RUNS):
        infer()
    return infer


def measure_together(
    inferences: Sequence[Callable[[], object]],
    threads: int = 1,
    *,
    clock: Callable[[], float] = time.perf_counter,
    probe: ContentionProbe = _PROBE,
) -> list[MeasuredLatency]:
    """Time inferences of several networks like `measure_latency`, with alternating bursts.

    A spell of other work slows down all networks equally, and several small networks hardly take longer than
    one.

    Args:
        inferences: Inferences of the networks, from `inference_of`.
        threads: Number of threads of LiteRT.
        clock: Returns seconds, for the time limits.
        probe: Detects other work that slows this machine down.
    """
    bursts: list[list[_Burst]] = [[] for _ in inferences]
    start, seconds, most = clock(), 0.0, _MOST_SECONDS * len(inferences)
    while unsettled := [
        place for place, own in enumerate(bursts) if _needs_more_bursts(own, probe, seconds, most)
    ]:
        for place in unsettled:
            if len(unsettled) > 1:
                inferences[place]()  # warms up the caches, which hold the previous network's data
            bursts[place].append(_burst(inferences[place], probe))
            seconds = clock() - start
    return [_result(own, threads, probe) for own in bursts]


def _result(bursts: Sequence[_Burst], threads: int, probe: ContentionProbe) -> MeasuredLatency:
    best = _lowest_first(_undisturbed(bursts, probe) or bursts)[0]
    return MeasuredLatency(
        median_ms=best.median_ms,
        p95_ms=float(np.quantile(best.times, 0.95)),
        runs=sum(len(burst.times) for burst in bursts),
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
    """Return an inference of a signature on random inputs."""
    runner = interpreter.get_signature_runner(signature)
    return partial(
        runner, **{name: _random(entry, batch) for name, entry in runner.get_input_details().items()}
    )


def _random(entry: Mapping[str, Any], batch: int) -> npt.NDArray[Any]:
    return random_input((batch, *entry["shape"][1:]), entry["dtype"])


def _needs_more_bursts(bursts: Sequence[_Burst], probe: ContentionProbe, seconds: float, most: float) -> bool:
    """Return whether more bursts are needed: there are too few, or the undisturbed ones do not agree yet."""
    if len(bursts) < _BURSTS or seconds < _LEAST_SECONDS:
        return True
    return seconds < most and not _agree(_undisturbed(bursts, probe))


def _undisturbed(bursts: Sequence[_Burst], probe: ContentionProbe) -> list[_Burst]:
    """Return the bursts that were not slowed down by other work, according to the probe."""
    return [burst for burst in bursts if not probe.slowed(burst.loop_seconds)]


def _agree(bursts: Sequence[_Burst]) -> bool:
    """Return whether the fastest relevant bursts have nearly equal medians."""
    medians = [burst.median_ms for burst in _lowest_first(bursts)[:_AGREEING]]
    return len(medians) == _AGREEING and medians[-1] <= _AGREEMENT * medians[0]


def _lowest_first(bursts: Sequence[_Burst]) -> list[_Burst]:
    """Return the bursts in order of their medians, without the lucky ones."""
    return sorted(bursts, key=lambda burst: burst.median_ms)[int(_LUCKY * len(bursts)) :]


def _burst(infer: Callable[[], object], probe: ContentionProbe) -> _Burst:
    """Time several runs."""
    before = probe.seconds()
    times: list[float] = []
    deadline = time.perf_counter() + _BURST_SECONDS
    while len(times) < _BURST_RUNS and (not times or time.perf_counter() < deadline):
        start = time.perf_counter()
        infer()
        times.append((time.perf_counter() - start) * 1e3)
    return _Burst(times, max(before, probe.seconds()))
