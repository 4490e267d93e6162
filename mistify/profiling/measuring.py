"""Timing of small networks on this device, within a time budget (paper 4.1)."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.costs.devices import DeviceTable, OperatorTiming, Power
from mistify.litert import open_interpreter
from mistify.machine import machine, runtime
from mistify.profiling.energy import EnergyCounter
from mistify.profiling.networks import network_of
from mistify.profiling.samples import Chain, samples

#: Duration of the measurement in seconds, unless a device needs longer to run everything once.
BUDGET_SECONDS: Final = 150.0

#: The runs of one network in one round; warm-up runs are not counted. A slow network runs less often, so that
#: slow devices can complete several rounds, too.
_WARM_UP_RUNS: Final = 3
_ROUND_SECONDS: Final = 0.006
_LEAST_RUNS: Final = 3
_SLOW_SECONDS: Final = 0.1

_QUANTIZED: Final = (np.dtype(np.int8), np.dtype(np.uint8))

#: Called with the completed share, from 0 to 1.
Progress = Callable[[float], object]


#: Reloads a network and returns its inference: its location in memory affects the time.
Loading = Callable[[], Callable[[], object]]

#: The same for an inference that returns the seconds of each of its parts.
TimedLoading = Callable[[], Callable[[], Sequence[float]]]


@dataclass
class _Subject:
    """A network to measure with a number of threads.

    `medians_ms` are the medians of its parts, each in its best round; `seconds` and `joules` cover all
    rounds.
    """

    load: TimedLoading
    operations: Chain = ()
    integer: bool = False
    threads: int = 1
    medians_ms: npt.NDArray[np.float64] | float = float("inf")
    seconds: float = 0.0
    joules: float = 0.0


def measure_device(
    name: str,
    threads: Iterable[int],
    *,
    chains: Callable[[bool], Iterable[Chain]] = lambda integer: samples(integer=integer),
    budget_seconds: float = BUDGET_SECONDS,
    progress: Progress = lambda share: None,
    clock: Callable[[], float] = time.perf_counter,
    energy: EnergyCounter | None = None,
) -> DeviceTable:
    """Time small networks of all kinds of operators, in float32 and int8.

    All networks run once, then again while there is time. Other load on the device only adds to a network's
    time, and comes in bursts; so rounds are spread over time, and the best one counts.

    Args:
        name: The device's name in goals.
        threads: Numbers of threads; each is measured separately.
        chains: The networks at one precision, each a chain of operators.
        budget_seconds: No network is measured again after this time; above 0.
        progress: Called with the share of the time that has passed.
        clock: Returns seconds.
        energy: The device's energy counter; None if it has none.
    """
    networks = [
        (chain, integer, network_of(chain, integer=integer))
        for integer in (False, True)
        for chain in chains(integer)
    ]
    subjects = [
        _Subject(_whole(partial(load_network, content, count), clock), chain, integer, count)
        for count, (chain, integer, content) in product(sorted(set(threads)), networks)
    ]
    with _without_collection():
        _measure(subjects, budget_seconds, progress, clock, energy or _nothing)
    readings = tuple(
        OperatorTiming(one.operations, one.integer, one.threads, float(np.sum(one.medians_ms)))
        for one in subjects
    )
    return DeviceTable(
        name=name,
        machine=machine(),
        runtime=runtime(),
        readings=readings,
        powers=() if energy is None else tuple(_powers(subjects)),
    )


def best_ms(load: Loading, budget_seconds: float) -> float:
    """Return the latency of a network in its best round, in milliseconds.

    Args:
        budget_seconds: Time for all rounds, unless a single run takes longer.
    """
    (parts_ms,) = best_of_parts_ms([_whole(load, time.perf_counter)], budget_seconds)
    return float(parts_ms.sum())


def best_of_parts_ms(loads: Iterable[TimedLoading], budget_seconds: float) -> list[npt.NDArray[np.float64]]:
    """Return the latency of each part of several networks in its best round, in milliseconds.

    The networks take turns, so that a burst of other load does not affect all rounds of one network.

    Args:
        loads: One for each network.
        budget_seconds: Time for all rounds of all networks, unless a single run of each takes longer.

    Returns:
        For each network an array [parts].
    """
    subjects = [_Subject(load) for load in loads]
    with _without_collection():
        _measure(subjects, budget_seconds, lambda share: None, time.perf_counter, _nothing)
    return [np.atleast_1d(subject.medians_ms) for subject in subjects]


def load_network(content: bytes, threads: int) -> Callable[[], object]:
    """Load a `.tflite` file and return its inference on random inputs, at batch 1 if that is free."""
    interpreter: Any = open_interpreter(content, threads)
    for entry in interpreter.get_input_details():
        # Packages have a free batch dimension; other networks may have a fixed one.
        if entry["shape_signature"][:1] == [-1]:
            interpreter.resize_tensor_input(entry["index"], [1, *entry["shape"][1:]])
    interpreter.allocate_tensors()
    for entry in interpreter.get_input_details():
        interpreter.set_tensor(entry["index"], random_input(entry["shape"], entry["dtype"]))
    run: Callable[[], object] = interpreter.invoke
    return run


def random_input(shape: Iterable[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return values for an input of a network, half of them zero as after a ReLU: zeros may be faster.

    The others are up to 1, or up to 127 if quantized. Wider integers are indices, and set to 0.
    """
    most = 127.0 if np.dtype(dtype) in _QUANTIZED else 1.0
    values = np.random.default_rng(0).uniform(-most, most, tuple(shape))
    return np.maximum(values, 0.0).astype(dtype)


def _measure(
    subjects: Sequence[_Subject],
    budget_seconds: float,
    progress: Progress,
    clock: Callable[[], float],
    energy: EnergyCounter,
) -> None:
    """Time all networks in rounds until the time is over; always complete the first round."""
    began = clock()
    first = True
    while first or clock() - began < budget_seconds:
        for subject in subjects:
            passed = clock() - began
            if passed >= budget_seconds and not first:
                break
            run, started, before = subject.load(), clock(), energy()
            typical = _typical_seconds(run)
            subject.seconds += clock() - started
            subject.joules += energy() - before
            del run  # free its memory before loading another one
            subject.medians_ms = np.minimum(subject.medians_ms, 1e3 * typical)
            progress(min(passed / budget_seconds, 1.0))
        first = False


def _powers(subjects: Iterable[_Subject]) -> Iterator[Power]:
    """Yield the power of the device at each setting: counters are too coarse for single networks."""
    settings: dict[tuple[bool, int], list[_Subject]] = {}
    for subject in subjects:
        settings.setdefault((subject.integer, subject.threads), []).append(subject)
    for (integer, threads), own in settings.items():
        joules = sum(subject.joules for subject in own)
        # In virtual machines, counters may exist but not advance.
        if joules > 0:
            yield Power(integer, threads, joules / sum(subject.seconds for subject in own))


def _nothing() -> float:
    return 0.0


def _whole(load: Loading, clock: Callable[[], float]) -> TimedLoading:
    """Return a network whose inference is a single part."""

    def load_timed() -> Callable[[], Sequence[float]]:
        run = load()

        def seconds() -> Sequence[float]:
            began = clock()
            run()
            return (clock() - began,)

        return seconds

    return load_timed


def _typical_seconds(run: Callable[[], Sequence[float]]) -> npt.NDArray[np.float64]:
    """Return the median of each part in one round."""
    spent = 0.0
    for _ in range(_WARM_UP_RUNS):
        spent += sum(run())
        if spent >= _SLOW_SECONDS:
            break
    times: list[Sequence[float]] = []
    total = 0.0
    while total < _ROUND_SECONDS or (len(times) < _LEAST_RUNS and total < _SLOW_SECONDS):
        times.append(run())
        total += sum(times[-1])
    return np.median(times, axis=0)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Disable garbage collection during the block."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
