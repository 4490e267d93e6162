"""Run the blocks of one network: `python -m mistify_client.lending.worker DESCRIPTOR`.

A helper starts a process for each device that it helps. Its memory is limited, and it speaks only to the
helper, on an inherited socket: first the network to load, then one inference after the other.
"""

import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, TypeVar

from mistify.package.manifest import TensorInfo
from mistify_client.assembly.executions import Tensors
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.segments import load_segments, segment_times
from mistify_client.lending.tensors import arrays_of, zeros_of

T = TypeVar("T")

#: The indices of an inference's first segment and of the one behind its last, then the bytes of its inputs.
REQUEST: Final = struct.Struct("<II")

#: A reply: whether it succeeded, and milliseconds; then the bytes of the outputs, or the reason.
REPLY: Final = struct.Struct("<?d")


@dataclass(frozen=True)
class WorkerLimits:
    """Limits of a worker.

    Attributes:
        memory: Bytes for blocks and tensors, besides those of an idle process.
        threads: Number of threads of LiteRT.
    """

    memory: int
    threads: int


class LoadedNetwork:
    """The segments of a network in memory."""

    def __init__(self, network: BlockNetwork, threads: int) -> None:
        self._network = network
        self._segments = load_segments(network, threads)
        self._threads = threads

    def timed(self) -> list[float]:
        """Return the milliseconds of each segment."""
        return segment_times(self._segments, zeros_of(self._network.inputs_of(0)), self._threads)

    def run(self, request: memoryview) -> tuple[bytes, float]:
        """Return the bytes of the outputs, and milliseconds, for an inference."""
        first, end = REQUEST.unpack_from(request)
        inputs = self._network.inputs_of(first)
        tensors: Tensors = arrays_of(_divided(request[REQUEST.size :], inputs), inputs)
        started = time.perf_counter()
        for segment in self._segments[first:end]:
            tensors = segment(tensors)
        milliseconds = 1e3 * (time.perf_counter() - started)
        return b"".join(
            tensors[tensor.name].tobytes() for tensor in self._network.tensors_at(end)
        ), milliseconds


def _divided(content: memoryview, tensors: Sequence[TensorInfo]) -> list[memoryview]:
    """Return the part of each tensor in their joint content."""
    parts = []
    for tensor in tensors:
        parts.append(content[: tensor.example_bytes])
        content = content[tensor.example_bytes :]
    return parts


def limit_memory(extra: int) -> None:
    """Limit the memory of this process to what it has now and some more bytes.

    The limit applies to writable memory, not to address space, of which LiteRT uses more than it needs.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmData:"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = 1024 * int(kilobytes) + extra
    resource.setrlimit(
        resource.RLIMIT_DATA, (most, hard if hard == resource.RLIM_INFINITY else min(most, hard))
    )


def serve(connection: Connection) -> None:
    """Load a network and run inferences until the other side closes the connection."""
    with suppress(EOFError, ConnectionError):
        network, limits = connection.recv()  # from the helper itself
        limit_memory(limits.memory)
        loaded = _answered(connection, lambda: LoadedNetwork(network, limits.threads))
        if loaded is None:
            return
        milliseconds = loaded.timed()
        connection.send_bytes(REPLY.pack(True, 0.0) + struct.pack(f"<{len(milliseconds)}d", *milliseconds))
        while True:
            request = memoryview(connection.recv_bytes())
            ran = _answered(connection, lambda request=request: loaded.run(request))  # type: ignore[misc]
            if ran is None:
                return
            outputs, computing_ms = ran
            connection.send_bytes(REPLY.pack(True, computing_ms) + outputs)


def _answered(connection: Connection, function: Callable[[], T]) -> T | None:
    """Return the result of a function; send the reason if it fails."""
    try:
        return function()
    except MemoryError:
        reason = "there is not enough memory"
    except Exception as error:
        reason = str(error)
    connection.send_bytes(REPLY.pack(False, 0.0) + reason.encode())
    return None


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the helper handles Ctrl-C
    serve(Connection(int(sys.argv[1])))
