"""Random requests for slices, and whether a device keeps their limits."""

from collections.abc import Iterator
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import NETWORK
from mistify.parsing.quantities import Quantity
from mistify.profiling.measuring import best_ms, load_network
from mistify.tflite.memory import memory_bytes
from mistify.tflite.resizable import resizable
from mistify_client.slicing.candidates import candidates
from mistify_client.slicing.customizing import SliceRequest, customize, factory_of

#: Seconds of one measurement, and seconds after which a slice counts as too slow: other load on the machine
#: only adds to a latency.
_SECONDS: Final = 0.3
_PATIENCE: Final = 10.0

#: The most values that a task names of an axis with names for several.
_MOST_VALUES: Final = 5

#: Limits that no slice keeps, relative to the latency of the smallest one.
_IMPOSSIBLE: Final = (0.3, 0.8)


class LimitedRequest(NamedTuple):
    """A request for a slice.

    Attributes:
        task: The properties.
        latency_ms: The limit of its latency; None for any.
        memory_bytes: The limit of its memory; None for any.
    """

    task: tuple[str, ...]
    latency_ms: float | None = None
    memory_bytes: float | None = None

    def __str__(self) -> str:
        """Return the request in words."""
        limits = [
            *([f"{self.latency_ms:.4g} ms"] if self.latency_ms else []),
            *([f"{self.memory_bytes:.0f} bytes"] if self.memory_bytes else []),
        ]
        return f"{', '.join(self.task)} within {' and '.join(limits)}"


class Outcome(NamedTuple):
    """The answer to a request.

    Attributes:
        error: None if a slice was installed.
        latency_ms: Milliseconds of the installed slice, measured afterwards.
        memory_bytes: Bytes of the installed slice.
    """

    request: LimitedRequest
    error: MistifyError | None = None
    latency_ms: float = 0.0
    memory_bytes: float = 0.0

    @property
    def is_within(self) -> bool:
        """Whether the slice keeps the limits."""
        latency, memory = self.request.latency_ms, self.request.memory_bytes
        return (latency is None or self.latency_ms <= latency) and (
            memory is None or self.memory_bytes <= memory
        )

    @property
    def is_refused(self) -> bool:
        """Whether an error says that no slice is as fast, and how fast the fastest one is."""
        error = self.error
        return (
            error is not None
            and error.code is ErrorCode.INVALID_CONFIG
            and [problem.place for problem in error.problems] == ["--latency"]
            and "expected at least" in str(error)
        )


class Requests:
    """Random requests to a package whose tasks are properties.

    Args:
        package: The directory of the package that was shipped.
        seed: Seed of tasks and limits.
    """

    def __init__(self, package: Path, seed: int = 0) -> None:
        self._package = package
        self._version, self._store = factory_of(package)
        self._whole = bytes(self._store.map_supernet(self._version.directory))
        self._assembler = self._store.read_assembler(self._version.directory)
        self._rng = np.random.default_rng(seed)

    def possible(self, count: int) -> Iterator[Outcome]:
        """Yield the answers to requests with limits between the smallest slice and the whole network.

        In turns, a request limits the latency, the memory, or both.
        """
        whole_ms = latency_ms(self._whole)
        for number in range(count):
            task = self.task()
            smallest = self._smallest(task)
            latency = self._between(latency_ms(smallest), whole_ms)
            memory = self._between(memory_bytes(smallest), memory_bytes(self._whole))
            limits = ((latency, None), (None, memory), (latency, memory))[number % 3]
            yield self._answer(LimitedRequest(task, *limits))

    def impossible(self, count: int) -> Iterator[Outcome]:
        """Yield the answers to requests with a latency below that of the smallest slice."""
        for _ in range(count):
            task = self.task()
            latency = latency_ms(self._smallest(task)) * self._rng.uniform(*_IMPOSSIBLE)
            yield self._answer(LimitedRequest(task, latency))

    def task(self) -> tuple[str, ...]:
        """Return a random task, trained or not."""
        space = self._store.space
        several = {value for values in space.names.values() for value in values}
        task: list[str] = []
        for values in space.axes.values():
            most = min(_MOST_VALUES, len(values) - 1) if several.issuperset(values) else 1
            task += self._rng.permutation(values)[: self._rng.integers(1, most + 1)].tolist()
        return tuple(task)

    def _answer(self, request: LimitedRequest) -> Outcome:
        latency, memory = (
            None if limit is None else Quantity(limit) for limit in (request.latency_ms, request.memory_bytes)
        )
        try:
            done = customize(self._package, SliceRequest(request.task, latency, memory), threads=1)
        except MistifyError as error:
            return Outcome(request, error)
        network = (done.directory / NETWORK).read_bytes()
        until = inf if request.latency_ms is None else request.latency_ms
        return Outcome(request, None, latency_ms(network, until), memory_bytes(network))

    def _smallest(self, task: tuple[str, ...]) -> bytes:
        """Return the smallest slice for a task."""
        asked, limits = self._store.asked(task), self._store.quality.tried_limits()
        (smallest,) = candidates(self._store, self._assembler, asked, limits[:1])
        return smallest.cut(self._whole, self._store.places)

    def _between(self, least: float, most: float) -> float:
        """Return a random value between two, any factor as likely."""
        return float(np.exp(self._rng.uniform(np.log(least), np.log(most))))


def latency_ms(network: bytes, until_ms: float = inf) -> float:
    """Return the latency of a network at batch 1 and one thread.

    Args:
        network: Content of a `.tflite` of a package.
        until_ms: Measure until the latency is as low, or it certainly is not.
    """
    load, end = partial(load_network, resizable(network), 1), monotonic() + _PATIENCE
    latency = best_ms(load, _SECONDS)
    while latency > until_ms and monotonic() < end:
        latency = min(latency, best_ms(load, _SECONDS))
    return latency
