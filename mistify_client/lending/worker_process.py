"""The process that runs the blocks of one network for one device."""

import signal
import socket
import struct
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.worker import REPLY, REQUEST, WorkerLimits

#: Seconds for loading a network and for its first runs.
_LOADING_SECONDS: Final = 60.0

#: Seconds for an inference.
INFERENCE_SECONDS: Final = 10.0


class WorkerProcess:
    """Loads a network in a process of its own; used by one thread at a time.

    Attributes:
        segment_ms: Milliseconds of each segment, for one example.
    """

    def __init__(self, network: BlockNetwork, limits: WorkerLimits) -> None:
        """Start the process and wait until the network is in memory.

        Raises:
            MistifyError: CORRUPT_PACKAGE or NO_ROOM, the network cannot be loaded within the limits.
        """
        self._limits = limits
        self._network = network
        own, other = socket.socketpair()
        with own, other:
            command = [sys.executable, "-m", "mistify_client.lending.worker", str(other.fileno())]
            self._process = subprocess.Popen(  # noqa: S603 (Mistify itself)
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[other.fileno()]
            )
            self._connection = Connection(own.detach())
        try:
            self._connection.send((network, limits))
            content, _ = self._reply(_LOADING_SECONDS)
        except BaseException:
            self.close()
            raise
        self.segment_ms = struct.unpack(f"<{len(network.starts)}d", content)

    def run(self, first: int, end: int, contents: list[bytes]) -> tuple[list[bytes], float]:
        """Run an inference.

        Args:
            first: Index of the first segment.
            end: Index of the segment behind the last one.
            contents: The bytes of its inputs.

        Returns:
            The bytes of each output of the last segment, and the milliseconds of the segments.

        Raises:
            MistifyError: NO_ROOM, there is not enough memory; UNAVAILABLE, it takes too long, or the process
                has ended.
        """
        try:
            self._connection.send_bytes(REQUEST.pack(first, end) + b"".join(contents))
        except OSError as error:
            raise self._ended() from error
        content, computing_ms = self._reply(INFERENCE_SECONDS)
        outputs = []
        for tensor in self._network.tensors_at(end):
            outputs.append(bytes(content[: tensor.example_bytes]))
            content = content[tensor.example_bytes :]
        return outputs, computing_ms

    def kill(self) -> None:
        """End the process, from any thread; a running inference fails."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process."""
        self.kill()
        self._connection.close()

    def _reply(self, seconds: float) -> tuple[memoryview, float]:
        try:
            if not self._connection.poll(seconds):
                self.kill()
                message = f"the blocks did not run within {seconds:.0f} s, so their process was ended"
                raise MistifyError(ErrorCode.UNAVAILABLE, message)
            reply = memoryview(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._ended() from error
        succeeded, milliseconds = REPLY.unpack_from(reply)
        if succeeded:
            return reply[REPLY.size :], milliseconds
        raise MistifyError(ErrorCode.NO_ROOM, f"the blocks cannot run: {str(reply[REPLY.size :], 'utf-8')}")

    def _ended(self) -> MistifyError:
        code = self._process.wait()
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        memory = f"the blocks may use {self._limits.memory / 1e6:.0f} MB"
        return MistifyError(ErrorCode.NO_ROOM, f"the process of the blocks ended {how}; {memory}")
