"""Timing small networks on this device, in the time that is given (paper 4.1)."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from mistify.costs.devices import DeviceTable, OperatorTiming, Power
from mistify.machine import machine
from mistify.package.manifest import Manifest
from mistify_client.profiling.energy import EnergyCounter
from mistify_client.profiling.networks import network_of
from mistify_client.profiling.samples import Chain, samples
from mistify_client.runtime.interpreter import NETWORK, Execution, Network

#: What measuring takes at the most, in seconds, unless a device needs longer to run everything once.
BUDGET_SECONDS: Final = 150.0

#: Of one network in one round: its first runs are not counted.
_WARM_UP_RUNS: Final = 3
_ROUND_SECONDS: Final = 0.006
_LEAST_RUNS: Final = 3

#: What measuring a single network takes.
_NETWORK_SECONDS: Final = 2.0

#: How much of it is done, from 0 to 1.
Progress = Callable[[float], object]


#: An inference, of a network that was loaded anew: where its memory lies is part of what it takes.
Loading = Callable[[], Callable[[], object]]


@dataclass
class _Subject:
    """A network that is measured with a number of threads.

    `median_ms` is the best of its rounds; `seconds` and `joules` are those of all of them.
    """

    load: Loading
    operations: Chain = ()
    integer: bool = False
    threads: int = 1
    median_ms: float = float("inf")
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
    """Run small networks of all kinds of operators, in float32 and int8, and note what they take.

    All are run once, then again for as long as there is time. Other work on the device only ever adds to what
    a network takes, and comes in spells: the best of its rounds, which lie apart, counts.

    Args:
        name: What goals are to call the device.
        threads: Numbers of threads.
        chains: The operators of each network at one precision.
        budget_seconds: After which no network is measured again; above 0.
        progress: Called with the share of the time that has passed.
        clock: In seconds.
        energy: Of this device; None where it does not count its energy.
    """
    networks = [
        (chain, integer, network_of(chain, integer=integer))
        for integer in (False, True)
        for chain in chains(integer)
    ]
    subjects = [
        _Subject(partial(_load, content, count), chain, integer, count)
        for count, (chain, integer, content) in product(sorted(set(threads)), networks)
    ]
    with _without_collection():
        _measure(subjects, budget_seconds, progress, clock, energy or _nothing)
    readings = tuple(OperatorTiming(s.operations, s.integer, s.threads, s.median_ms) for s in subjects)
    return DeviceTable(
        name=name,
        machine=machine(),
        runtime=f"ai-edge-litert {version('ai-edge-litert')}",
        readings=readings,
        powers=() if energy is None else tuple(_powers(subjects)),
    )


def measure_package(package: Path, threads: Iterable[int]) -> float:
    """What an inference of a package takes here, at the fastest number of threads, in milliseconds.

    Of a package with branches that of its goal's own network.

    Raises:
        MistifyError: the directory is no package.
    """
    manifest, content = Manifest.load(package), (package / NETWORK).read_bytes()
    load = partial(_load_branch, manifest) if manifest.branches else _load
    subjects = [_Subject(partial(load, content, count)) for count in threads]
    with _without_collection():
        _measure(subjects, _NETWORK_SECONDS, lambda share: None, time.perf_counter, _nothing)
    return min(subject.median_ms for subject in subjects)


def _measure(
    subjects: Sequence[_Subject],
    budget_seconds: float,
    progress: Progress,
    clock: Callable[[], float],
    energy: EnergyCounter,
) -> None:
    """Round after round, until the time is over; the first round is done in any case."""
    began = clock()
    first = True
    while first or clock() - began < budget_seconds:
        for subject in subjects:
            passed = clock() - began
            if passed >= budget_seconds and not first:
                break
            run, started, before = subject.load(), clock(), energy()
            taken = _typical_seconds(run, clock)
            subject.seconds += clock() - started
            subject.joules += energy() - before
            subject.median_ms = min(subject.median_ms, 1e3 * taken)
            progress(min(passed / budget_seconds, 1.0))
        first = False


def _powers(subjects: Iterable[_Subject]) -> Iterator[Power]:
    """What the device draws with each setting: counters are too coarse to tell networks apart."""
    settings: dict[tuple[bool, int], list[_Subject]] = {}
    for subject in subjects:
        settings.setdefault((subject.integer, subject.threads), []).append(subject)
    for (integer, threads), own in settings.items():
        joules = sum(subject.joules for subject in own)
        # Of virtual machines, counters may be there and stand still.
        if joules > 0:
            yield Power(integer, threads, joules / sum(subject.seconds for subject in own))


def _nothing() -> float:
    return 0.0


def _load(content: bytes, threads: int) -> Callable[[], object]:
    interpreter: Any = Interpreter(model_content=content, num_threads=threads)
    for entry in interpreter.get_input_details():
        # As a package, whose batch is free; that of other networks is as it is.
        if entry["shape_signature"][:1] == [-1]:
            interpreter.resize_tensor_input(entry["index"], [1, *entry["shape"][1:]])
    interpreter.allocate_tensors()
    run: Callable[[], object] = interpreter.invoke
    return run


def _load_branch(manifest: Manifest, content: bytes, threads: int) -> Callable[[], object]:
    network = Network(manifest, content, Execution(threads))
    inputs = {
        info.name: np.zeros([max(1, size) for size in info.shape], info.dtype) for info in manifest.inputs
    }
    return lambda: network(inputs, manifest.default_branch)


def _typical_seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    for _ in range(_WARM_UP_RUNS):
        run()
    taken: list[float] = []
    while len(taken) < _LEAST_RUNS or sum(taken) < _ROUND_SECONDS:
        start = clock()
        run()
        taken.append(clock() - start)
    return median(taken)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Python collects garbage after, not in between."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
