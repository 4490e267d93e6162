"""Limits on memory and CPU time for a process that loads a possibly hostile model."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tensorflow.errors import ResourceExhaustedError

from executors.inspection.errors import invalid
from executors.inspection.limits import GIB

#: CPU seconds for loading a model; EfficientNetV2L takes a tenth.
PROCESSOR_SECONDS = 300


class _ProcessorTimeError(Exception):
    """The process has used up its CPU time."""


@contextmanager
def limited_resources(path: Path | str, memory: float, seconds: int = PROCESSOR_SECONDS) -> Iterator[None]:
    """Limit the additional memory and CPU time used inside the context.

    The limit applies to writable memory (RLIMIT_DATA), not to address space: TensorFlow maps gigabytes that
    it never uses. Allocations beyond the limit fail, and a process that cannot handle that ends immediately.
    Use this only in the main thread of a process, where signals arrive.

    Args:
        path: The model named in errors.
        memory: Bytes in addition to the process's current memory.
        seconds: CPU seconds in addition to those used so far.

    Raises:
        MistifyError: INVALID_MODEL if memory or CPU time did not suffice.
    """
    try:
        with _memory(int(memory)), _processor_time(seconds):
            yield
    except Exception as error:
        # Keras wraps the causes of its errors.
        causes = tuple(_chain(error))
        if any(isinstance(cause, MemoryError | ResourceExhaustedError) for cause in causes):
            raise invalid(
                path,
                f"a model that needs more than {memory / GIB:,.1f} GiB to load",
                "a model that needs a few times its own size",
                "save a smaller model",
            ) from error
        if any(isinstance(cause, _ProcessorTimeError) for cause in causes):
            raise invalid(
                path,
                f"a model that takes more than {seconds} s to load",
                "a shorter time",
                "simplify the model",
            ) from error
        raise


@contextmanager
def _memory(extra: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = _writable_bytes() + extra
    resource.setrlimit(resource.RLIMIT_DATA, (_least(most, soft, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def _processor_time(extra: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    most = int(usage.ru_utime + usage.ru_stime) + extra
    before = signal.signal(signal.SIGXCPU, _give_up)
    resource.setrlimit(resource.RLIMIT_CPU, (_least(most, soft, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        signal.signal(signal.SIGXCPU, before)


def _give_up(_signal: int, _frame: FrameType | None) -> None:
    raise _ProcessorTimeError


def _least(*limits: int) -> int:
    return min(limit for limit in limits if limit != resource.RLIM_INFINITY)


def _writable_bytes() -> int:
    """Return the number of bytes that count towards RLIMIT_DATA."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmData")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
