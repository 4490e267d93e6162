"""Measurement of this device in a separate process, without the networks that crash it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Final, TypeAlias

from mistify.costs.devices import DeviceTable
from mistify.errors import ErrorCode, MistifyError
from mistify.isolation.process import DisposableProcess, ProcessEndedError
from mistify.profiling.energy import energy_counter
from mistify.profiling.measuring import BUDGET_SECONDS, Progress, measure_device
from mistify.profiling.samples import Chain, samples

#: The operators of each sample network, by whether the networks are int8 (True) or float32 (False).
Chains: TypeAlias = Mapping[bool, tuple[Chain, ...]]

#: Measures a named device, given threads, chains, seconds, and a callback for each measured network.
Measure: TypeAlias = Callable[[str, tuple[int, ...], Chains, float, Progress], DeviceTable]

#: Number of crashes in LiteRT after which a device counts as not measurable.
_MOST_CRASHES: Final = 16


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
    """Return the measurements of `measure_device`, without networks at which LiteRT crashes.

    After each crash, all other networks are measured again.

    Args:
        name: The device's name in goals.
        threads: Numbers of threads; each is measured separately.
        chains: The networks, each a chain of operators; None for the standard set.
        budget_seconds: No network is measured again after this time; above 0.
        progress: Called with the share of the time that has passed.
        measure: The measurement that runs in the separate process.

    Raises:
        MistifyError: UNAVAILABLE, LiteRT crashes at many networks.
    """
    counts = tuple(sorted(set(threads)))
    left = chains or {integer: tuple(samples(integer=integer)) for integer in (False, True)}
    with closing(DisposableProcess()) as process:
        for _ in range(_MOST_CRASHES):
            counted = _CountedProgress(progress)
            try:
                return process.call_reporting(measure, name, counts, left, budget_seconds, on_report=counted)
            except ProcessEndedError as error:
                how = str(error)
                left = _without(left, counted.count)
    raise MistifyError(
        ErrorCode.UNAVAILABLE,
        f"this device cannot be measured: LiteRT ended at {_MOST_CRASHES} networks, at the last as {how}; "
        "install the version of ai-edge-litert that Mistify requires",
    )


class _CountedProgress:
    """Counts progress reports: one for each network measured in a round."""

    def __init__(self, progress: Progress) -> None:
        self.count = 0
        self._progress = progress

    def __call__(self, share: float) -> None:
        self.count += 1
        self._progress(share)


def _without(chains: Chains, number: int) -> Chains:
    """Return all chains except one, given its index in the cyclic sequence that starts with float32."""
    ordered = [(integer, chain) for integer in (False, True) for chain in chains[integer]]
    del ordered[number % len(ordered)]
    return {integer: tuple(chain for at, chain in ordered if at is integer) for integer in (False, True)}
