"""The latencies of inferences: recorded by each loaded model, read by any process on the device (paper 6).

A loaded model records its inferences in its own memory-mapped file: counters, and a ring buffer of the last
`CAPACITY` inferences. It holds a lock on the file, so that readers recognize files of ended processes.
"""

import itertools
import mmap
import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.files.locking import lock, locked, try_lock

#: Number of inferences in the ring buffer.
CAPACITY: Final = 1024

#: An inference: its end (seconds of `time.monotonic`, the same in all processes); the milliseconds of the
#: network, those during which its thread used the processor, and those from the call until the network ran;
#: the index of the option that ran (`PackageOptions`); the last of its stages that ran, 0 without exits; the
#: number of examples; 1 if a helper has run a part of it.
INFERENCE: Final = np.dtype(
    [
        ("ended", "f8"),
        ("latency_ms", "f4"),
        ("computing_ms", "f4"),
        ("before_ms", "f4"),
        ("option", "i2"),
        ("stage", "i2"),
        ("batch", "i4"),
        ("helped", "i4"),
    ]
)

_RUNTIMES: Final = "runtimes"
_MAGIC: Final = b"MISTIFY\5"

#: Files of earlier versions that can be read: a larger number in place of an option and a stage, or of a
#: number of examples and a mark.
_EARLIER: Final = b"MISTIFY\3", b"MISTIFY\4"

# Magic, generation, number of options, threads; then an integer for the total, one for each option, and the
# ring buffer.
_HEADER: Final = struct.Struct("8sIIQ")
_COUNT_BYTES: Final = 8
_RECORD: Final = struct.Struct("dfffhhii")


@dataclass(frozen=True)
class StageStatistics:
    """The number of inferences that ended at a stage, and their median latency."""

    inferences: int
    p50_ms: float


@dataclass(frozen=True)
class Statistics:
    """Statistics on recent inferences.

    Attributes:
        inferences: Number of recent inferences behind the percentiles.
        p50_ms: Median latency; None without inferences.
        p95_ms: 95th percentile of the latency.
        counts: Option id -> number of inferences since the model was loaded.
        option: Id of the option that ran last; None without inferences.
        stages: Id of an option, and number of the stage that answered (0 without exits) -> their inferences.
    """

    inferences: int
    p50_ms: float | None
    p95_ms: float | None
    counts: Mapping[str, int]
    option: str | None
    stages: Mapping[tuple[str, int], StageStatistics]


@dataclass(frozen=True)
class Observed:
    """The records of a loaded model.

    Attributes:
        pid: The id of its process.
        generation: The generation of the version that it runs (`Switchboard.generation`).
        threads: Number of threads of LiteRT.
        counts: Number of inferences of each option, in the order of the options.
        inferences: The last inferences, the oldest first, as `INFERENCE`.
    """

    pid: int
    generation: int
    threads: int
    counts: tuple[int, ...]
    inferences: npt.NDArray[Any]

    def statistics(self, options: Sequence[str], seconds: float, now: float | None = None) -> Statistics:
        """Return statistics on the inferences of the last seconds before `now` (of `time.monotonic`).

        Args:
            options: Ids of the options of its version, in order.
        """
        since = (time.monotonic() if now is None else now) - seconds
        recent = self.inferences[self.inferences["ended"] >= since]
        p50, p95 = np.quantile(recent["latency_ms"], (0.5, 0.95)).tolist() if len(recent) else (None, None)
        last = options[int(self.inferences["option"][-1])] if len(self.inferences) else None
        counts = dict(zip(options, self.counts, strict=True))
        return Statistics(len(recent), p50, p95, counts, last, dict(_by_stage(recent, options)))


class Recorder:
    """The recorder of a loaded model's inferences, for one thread at a time.

    A recorder created without `open` is private to this process.

    Args:
        options: Number of options.
        generation: The generation of the current version.
        threads: Number of threads of LiteRT.
        memory: A buffer of `recorder_bytes`.
    """

    def __init__(
        self, options: int, generation: int, threads: int, memory: mmap.mmap | bytearray | None = None
    ) -> None:
        self._memory = bytearray(recorder_bytes(options)) if memory is None else memory
        _HEADER.pack_into(self._memory, 0, _MAGIC, generation, options, threads)
        self._ring = _ring_offset(options)
        self._counts = memoryview(self._memory)[_HEADER.size : self._ring].cast("Q")

    @classmethod
    def open(cls, state: Path, options: int, generation: int, threads: int) -> "Recorder":
        """Return a recorder that other processes can read while it exists.

        Args:
            state: The state directory of the package.
            options: Number of options.
            generation: The generation of the current version.
            threads: Number of threads of LiteRT.

        Raises:
            OSError: The recorder's file cannot be created.
        """
        runtimes = state / _RUNTIMES
        runtimes.mkdir(parents=True, exist_ok=True)
        size = recorder_bytes(options)
        with locked(runtimes):  # a file without a lock looks like the file of an ended process
            _remove_stale(runtimes)
            path = next(path for path in _names(runtimes) if not path.exists())
            with path.open("x+b") as file:
                lock(file)
                # Written, not just sized: an unallocated page on a full disk would crash the process.
                file.write(bytes(size))
                file.flush()
                # The mapping keeps a descriptor, and with it the lock, until it is garbage-collected.
                return cls(options, generation, threads, mmap.mmap(file.fileno(), size))

    def record(
        self,
        ended: float,
        latency_ms: float,
        computing_ms: float,
        before_ms: float,
        *,
        option: int,
        stage: int = 0,
        batch: int,
        helped: bool = False,
    ) -> None:
        """Record an inference.

        Args:
            ended: Seconds of `time.monotonic`.
            latency_ms: Milliseconds that the network ran.
            computing_ms: Processor time of the thread during the inference.
            before_ms: Time from the call until the network ran: checking inputs, waiting for other calls.
            option: Index of the option that ran.
            stage: The last of its stages that ran; 0 without exits.
            batch: Number of examples.
            helped: Whether a helper has run a part of it.
        """
        counts = self._counts
        total = counts[0]
        offset = self._ring + total % CAPACITY * _RECORD.size
        _RECORD.pack_into(
            self._memory, offset, ended, latency_ms, computing_ms, before_ms, option, stage, batch, helped
        )
        counts[1 + option] += 1
        counts[0] = total + 1  # last, because this completes the record

    def observed(self) -> Observed:
        """Return the records so far."""
        return _read(self._memory, os.getpid())


def _by_stage(
    inferences: npt.NDArray[Any], options: Sequence[str]
) -> Iterator[tuple[tuple[str, int], StageStatistics]]:
    for option, stage in np.unique(inferences[["option", "stage"]]).tolist():
        same = inferences[(inferences["option"] == option) & (inferences["stage"] == stage)]
        median = float(np.median(same["latency_ms"]))
        yield (options[option], stage), StageStatistics(len(same), median)


def recorder_bytes(options: int) -> int:
    """Return the size of a recorder's memory in bytes."""
    return _ring_offset(options) + CAPACITY * _RECORD.size


def observed(state: Path) -> list[Observed]:
    """Return the records of every loaded model of a package on this device.

    Args:
        state: The state directory of the package.
    """
    runtimes = state / _RUNTIMES
    return list(_living(runtimes)) if runtimes.is_dir() else []


def _living(runtimes: Path) -> Iterator[Observed]:
    for path in runtimes.iterdir():
        with (
            suppress(OSError, ValueError, struct.error),
            path.open("rb") as file,
        ):  # of a process that is ending, or not a recorder's file
            if not try_lock(file, shared=True):
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
                    yield _read(memory, int(path.name.partition("-")[0]))


def _remove_stale(runtimes: Path) -> None:
    """Remove the files of processes that have ended."""
    for path in runtimes.iterdir():
        with suppress(OSError), path.open("rb") as file:  # it may be that of another user, or no file
            if try_lock(file, shared=True):
                path.unlink()


def _names(runtimes: Path) -> Iterator[Path]:
    return (runtimes / f"{os.getpid()}-{number}" for number in itertools.count())


def _ring_offset(options: int) -> int:
    return _HEADER.size + _COUNT_BYTES * (1 + options)


def _read(memory: mmap.mmap | bytearray, pid: int) -> Observed:
    """Return the records in a recorder's memory, even while it is recording.

    Raises:
        ValueError: The memory is not a recorder's.
    """
    if memory[: len(_MAGIC)] not in (_MAGIC, *_EARLIER):
        raise ValueError(f"not a recorder of this version: {bytes(memory[: len(_MAGIC)])!r}")
    _, generation, options, threads = _HEADER.unpack_from(memory)
    counts, last = _counts(memory, options)
    copied = np.frombuffer(memory[_ring_offset(options) : recorder_bytes(options)], INFERENCE)
    # Newer records may have replaced the oldest ones in the meantime, and one more may be half written.
    first = max(0, _counts(memory, options)[1] - CAPACITY + 1)
    return Observed(pid, generation, threads, counts, copied[np.arange(first, max(first, last)) % CAPACITY])


def _counts(memory: mmap.mmap | bytearray, options: int) -> tuple[tuple[int, ...], int]:
    """Return the number of inferences of each option, and in total."""
    total, *counts = struct.unpack_from(f"{1 + options}Q", memory, _HEADER.size)
    return tuple(counts), total
