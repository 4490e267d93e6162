"""Recent inputs of apps, which adaptation without labels reads from another process.

While a process reads them, each loaded model writes some of its inputs into a memory-mapped file of its own,
at most `RATE` examples a second, in a directory in the state directory of the package. Only the owner of the
files can read them. Copying an input takes microseconds, and no inference. A reader holds a lock, so that
apps stop, and remove their files, soon after it was killed.
"""

import itertools
import mmap
import os
import shutil
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from mistify.files.locking import lock, locked, try_lock
from mistify.package.manifest import TensorInfo

__all__ = ["RATE", "InputSamples", "SampleReader", "are_fixed", "remove_samples"]

Array = npt.NDArray[Any]

#: Examples a second, at most.
RATE: Final = 20.0

#: Examples in a file: those of some seconds, within a limit of bytes.
_MOST_EXAMPLES: Final = 128
_LEAST_EXAMPLES: Final = 8
_MOST_BYTES: Final = 2_000_000

#: Seconds between looks for a reader.
_LOOK_SECONDS: Final = 2.0

_SAMPLES: Final = "samples"

#: The directory while it is being removed.
_REMOVED: Final = "samples.removed"

#: The file in it that readers lock.
_READERS: Final = "readers"

_MAGIC: Final = b"MISTSAM\1"

# Magic, number of places, bytes of an example; then the number of examples so far, and the places. A place
# has the number of its example, which is 0 while it is written.
_HEADER: Final = struct.Struct("8sII")
_NUMBER: Final = struct.Struct("Q")
_FIRST: Final = _HEADER.size + _NUMBER.size


def are_fixed(inputs: Sequence[TensorInfo]) -> bool:
    """Return whether all examples have the same number of bytes."""
    return all(size > 0 for info in inputs for size in info.shape[1:])


def samples_directory(state: Path) -> Path:
    """Return the directory of the samples in the state directory of a package."""
    return state / _SAMPLES


def remove_samples(state: Path) -> None:
    """Remove all samples in the state directory of a package, for example those of a reader that was killed.

    Apps write no others until a reader starts.
    """
    directory, removed = samples_directory(state), state / _REMOVED
    shutil.rmtree(removed, ignore_errors=True)
    with suppress(OSError):
        directory.rename(removed)  # at once, so that no app adds a file in the meantime
    shutil.rmtree(removed, ignore_errors=True)


class InputSamples:
    """The writer of a loaded model, for one thread at a time.

    Args:
        state: The state directory of the package.
        inputs: The inputs of the network.
        clock: Returns seconds.
    """

    def __init__(
        self, state: Path, inputs: Sequence[TensorInfo], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory, self._inputs, self._clock = samples_directory(state), inputs, clock
        self._bytes = sum(info.example_bytes for info in inputs) if are_fixed(inputs) else 0
        self._memory: mmap.mmap | None = None
        self._path = self._directory
        self._places = 0
        self._next = self._look_at = float("-inf")

    def offer(self, values: Mapping[str, Array]) -> None:
        """Write an example of a batch, unless one was written just now, or nothing reads them.

        Args:
            values: Input -> [batch, ...].
        """
        now = self._clock()
        if now < self._next or not self._bytes:
            return
        self._next = now + 1 / RATE
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._look()
        if self._memory is None:
            self._next = self._look_at
        else:
            self._write(self._memory, values)

    def _look(self) -> None:
        """Open a file for a reader if there is one; else remove it."""
        if not _is_read(self._directory):
            self._remove()
        elif self._memory is None or not self._path.exists():
            self._memory = self._opened()

    def _remove(self) -> None:
        if self._memory is not None:
            self._memory = None
            with suppress(OSError):
                self._path.unlink()

    def _opened(self) -> mmap.mmap | None:
        """Return the memory of a new file; None if it cannot be written."""
        with suppress(OSError):
            return self._created()
        return None

    def _created(self) -> mmap.mmap:
        self._places = max(_LEAST_EXAMPLES, min(_MOST_EXAMPLES, _MOST_BYTES // self._bytes))
        size = _FIRST + self._places * (_NUMBER.size + self._bytes)
        with locked(self._directory):
            _remove_stale(self._directory)
            names = (self._directory / f"{os.getpid()}-{number}" for number in itertools.count())
            self._path = next(path for path in names if not path.exists())
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "r+b") as file:
                lock(file)
                # Written, not just sized: an unallocated page on a full disk would crash the process.
                file.write(_HEADER.pack(_MAGIC, self._places, self._bytes).ljust(size, b"\0"))
                file.flush()
                # The mapping keeps a descriptor, and with it the lock, until it is garbage-collected.
                return mmap.mmap(file.fileno(), size)

    def _write(self, memory: mmap.mmap, values: Mapping[str, Array]) -> None:
        (total,) = _NUMBER.unpack_from(memory, _HEADER.size)
        start = _FIRST + total % self._places * (_NUMBER.size + self._bytes)
        _NUMBER.pack_into(memory, start, 0)
        at = start + _NUMBER.size
        for info in self._inputs:
            content = np.ascontiguousarray(values[info.name][total % len(values[info.name])]).tobytes()
            memory[at : at + len(content)] = content
            at += len(content)
        _NUMBER.pack_into(memory, start, total + 1)
        _NUMBER.pack_into(memory, _HEADER.size, total + 1)


class SampleReader:
    """The reader of all samples of a package, for one thread at a time.

    Args:
        state: The state directory of the package.
        inputs: The inputs of the network.
    """

    def __init__(self, state: Path, inputs: Sequence[TensorInfo]) -> None:
        self._directory, self._inputs = samples_directory(state), inputs
        self._state = state
        self._seen: dict[str, int] = {}
        self._readers: IO[bytes] | None = None

    def start(self) -> None:
        """Ask apps for samples, until `stop` or the end of this process; pass over those that are there.

        Raises:
            OSError: The directory cannot be written.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._readers = (self._directory / _READERS).open("ab")
        lock(self._readers, shared=True)
        deque(self.new(), maxlen=0)

    def stop(self) -> None:
        """Remove all samples; apps write no others."""
        remove_samples(self._state)
        self._seen.clear()
        if self._readers is not None:
            self._readers.close()

    def new(self) -> Iterator[dict[str, Array]]:
        """Yield the examples that were written since the last call, by input, without a batch axis.

        Some are missing if apps wrote more than fit into their files.
        """
        with suppress(FileNotFoundError):
            for path in sorted(_files(self._directory)):
                with suppress(OSError, ValueError, struct.error), path.open("rb") as file:
                    if not try_lock(file, shared=True):
                        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
                            yield from self._new_in(path.name, memory)

    def _new_in(self, name: str, memory: mmap.mmap) -> Iterator[dict[str, Array]]:
        magic, places, size = _HEADER.unpack_from(memory)
        if magic != _MAGIC or size != sum(info.example_bytes for info in self._inputs):
            return
        (total,) = _NUMBER.unpack_from(memory, _HEADER.size)
        seen = self._seen.get(name, 0)
        for number in range(max(seen if seen <= total else 0, total - places), total):
            start = _FIRST + number % places * (_NUMBER.size + size)
            content = memory[start : start + _NUMBER.size + size]
            if _NUMBER.unpack_from(content) == _NUMBER.unpack_from(memory, start) == (number + 1,):
                yield self._example(content[_NUMBER.size :])
        self._seen[name] = total

    def _example(self, content: bytes) -> dict[str, Array]:
        arrays, at = {}, 0
        for info in self._inputs:
            count = prod(info.shape[1:])
            array = np.frombuffer(content, info.dtype, count, at).reshape(info.shape[1:])
            arrays[info.name], at = array, at + array.nbytes
        return arrays


def _is_read(directory: Path) -> bool:
    """Check whether a reader holds the lock of a directory, which need not exist."""
    with suppress(OSError), (directory / _READERS).open("rb") as file:
        return not try_lock(file)
    return False


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files of apps."""
    return (path for path in directory.iterdir() if path.name != _READERS)


def _remove_stale(directory: Path) -> None:
    """Remove the files of processes that have ended."""
    for path in _files(directory):
        with suppress(OSError), path.open("rb") as file:  # it may be that of another user, or no file
            if try_lock(file, shared=True):
                path.unlink()
