"""How LiteRT runs a network fastest on this machine: measured once, then remembered."""

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

#: Another way has to take less than this share of the time: threads also take from others.
_WORTHWHILE: Final = 0.9


def fastest(
    prepare: Callable[[Execution], Callable[[], object]], clock: Callable[[], float] = time.perf_counter
) -> Execution:
    """The way in which an inference takes least; fewer threads where more bring little.

    Args:
        prepare: gives an inference that runs in some way.
        clock: in seconds.
    """
    ways = [Execution(threads) for threads in _thread_counts()] + [Execution(delegate=False)]
    best, least = ways[0], float("inf")
    for way in ways:
        taken = _typical_seconds(prepare(way), clock)
        if taken < _WORTHWHILE * least:
            best, least = way, taken
    return best


def best_execution(state: Path, package: Manifest, open_with: Callable[[Execution], Network]) -> Execution:
    """What was found fastest for a package on this machine; found now, if need be, and remembered.

    Args:
        state: the state directory of the package.
        package: its manifest.
        open_with: opens its network to run in some way.
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
    """Tells networks and machines apart, and versions of LiteRT."""
    machine = f"{platform.machine()}, {max(_thread_counts())} threads, {version('ai-edge-litert')}"
    return f"{package.files[NETWORK].sha256} on {machine}"


def _typical_seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    for _ in range(_WARM_UP_RUNS):
        run()
    taken: list[float] = []
    while len(taken) < _RUNS and sum(taken) < _SECONDS:
        start = clock()
        run()
        taken.append(clock() - start)
    return median(taken)


def _thread_counts() -> list[int]:
    """1, 2, 4 and so on, as many as this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [2**power for power in range(usable.bit_length())]
