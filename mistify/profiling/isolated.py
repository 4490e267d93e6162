"""The measurement of this device in a process of its own, without the networks that end it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Final, TypeAlias

from mistify.costs.devices import DeviceTable
from mistify.errors import ErrorCode, MistifyError
from mistify.isolation.process import DisposableProcess, ProcessEndedError
from mistify.profiling.energy import energy_counter
from mistify.profiling.measuring import BUDGET_SECONDS, Progress, measure_device
from mistify.profiling.samples import Chain, samples

#: The operators of each network by whether it is int8, instead of float32.
Chains: TypeAlias = Mapping[bool, tuple[Chain, ...]]

#: Measures a device of a name: threads, chains, seconds, and what is called once for each network.
Measure: TypeAlias = Callable[[str, tuple[int, ...], Chains, float, Progress], DeviceTable]

#: Networks that may end LiteRT before a device counts as one that cannot be measured.
_MOST_ENDS: Final = 16


def _measured(
    name: str, threads: tuple[int, ...], chains: Chains, budget_seconds: float, progress: Progress
) -> DeviceTable:
    return measure_device(
        name,
        threads,
        chains=chains.__getitem__,
        budget_seconds=budget_seconds,
        progress=progress,
        energy=energy_counter(),
    )


def measure_isolated(
    name: str,
    threads: Iterable[int],
    *,
    chains: Chains | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    progress: Progress = lambda share: None,
    measure: Measure = _measured,
) -> DeviceTable:
    """Return the measurements of `measure_device`, without networks at which LiteRT ends its process.

    After each of these all others are measured again.

    Args:
        name: The device's name in goals.
        threads: Each number of threads is measured by itself.
        chains: The networks, each a chain of operators; None for those that every device measures.
        budget_seconds: No network is measured again after this time; above 0.
        progress: Called with the share of the time that has passed.
        measure: Runs in the separate process.

    Raises:
        MistifyError: UNAVAILABLE, LiteRT ends at many networks.
    """
    counts = tuple(sorted(set(threads)))
    left = chains or {integer: tuple(samples(integer=integer)) for integer in (False, True)}
    with closing(DisposableProcess()) as process:
        for _ in range(_MOST_ENDS):
            counted = _CountedProgress(progress)
            try:
                return process.call_reporting(measure, name, counts, left, budget_seconds, on_report=counted)
            except ProcessEndedError as error:
                how = str(error)
                left = _without(left, counted.count)
    raise MistifyError(
        ErrorCode.UNAVAILABLE,
        f"this device cannot be measured: LiteRT ended at {_MOST_ENDS} networks, at the last as {how}; "
        "install the version of ai-edge-litert that Mistify requires",
    )


class _CountedProgress:
    """Counts how often progress is reported: once for each network that was measured in a round."""

    def __init__(self, progress: Progress) -> None:
        self.count = 0
        self._progress = progress

    def __call__(self, share: float) -> None:
        self.count += 1
        self._progress(share)


def _without(chains: Chains, number: int) -> Chains:
    """Return all chains but one, counted over the endless sequence that begins with the first float32 one."""
    ordered = [(integer, chain) for integer in (False, True) for chain in chains[integer]]
    del ordered[number % len(ordered)]
    return {integer: tuple(chain for at, chain in ordered if at is integer) for integer in (False, True)}
