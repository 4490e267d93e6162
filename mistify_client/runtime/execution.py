"""The fastest way to run a network in LiteRT on this machine: measured once, then remembered."""

import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

from mistify.files import locked, write_json
from mistify.package.manifest import Manifest
from mistify_client.runtime.interpreter import NETWORK, Execution, Network

_FILE: Final = "execution.json"

_WARM_UP_RUNS: Final = 2
_RUNS: Final = 20
_SECONDS: Final = 0.05

#: Another way has to take less than this share of the time: threads also take time from other processes.
_WORTHWHILE: Final = 0.9


def fastest(
    prepare: Callable[[Execution], Callable[[], object]], clock: Callable[[], float] = time.perf_counter
) -> Execution:
    """Return the way in which an inference is fastest, with fewer threads where more gain little.

    Args:
        prepare: returns an inference that runs in the given way.
        clock: in seconds.
    """
    ways = [Execution(threads) for threads in _thread_counts()] + [Execution(delegate=False)]
    best, least = ways[0], float("inf")
    for way in ways:
        times = _typical_seconds(prepare(way), clock)
        if times < _WORTHWHILE * least:
            best, least = way, times
    return best


def best_execution(state: Path, package: Manifest, open_with: Callable[[Execution], Network]) -> Execution:
    """Return the fastest way to run a package on this machine, as remembered or as measured now.

    Args:
        state: the state directory of the package.
        package: its manifest.
        open_with: opens its network to run in the given way.
    """
    known = _remembered(state)
    key = _key(package)
    with suppress(KeyError, TypeError):
        return Execution(**known[key])
    best = fastest(lambda way: open_with(way).warm_up)
    with suppress(OSError), locked(state):
        write_json(state / _FILE, _remembered(state) | {key: vars(best)})
    return best


def _remembered(state: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        known = json.loads((state / _FILE).read_bytes())
        return known if isinstance(known, dict) else {}
    return {}


def _key(package: Manifest) -> str:
    """Return a key that differs between networks, machines and versions of LiteRT."""
    machine = f"{platform.machine()}, {max(_thread_counts())} threads, {version('ai-edge-litert')}"
    return f"{package.files[NETWORK].sha256} on {machine}"


def _typical_seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    for _ in range(_WARM_UP_RUNS):
        run()
    times: list[float] = []
    while len(times) < _RUNS and sum(times) < _SECONDS:
        start = clock()
        run()
        times.append(clock() - start)
    return median(times)


def _thread_counts() -> list[int]:
    """Return 1, 2, 4 and so on, up to the processors that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [2**power for power in range(usable.bit_length())]
