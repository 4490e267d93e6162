"""A session with a helper: requests out, one at a time, and answers in."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import grpc

from mistify.v1 import lending_pb2 as pb
from mistify.v1.lending_pb2_grpc import LendingStub
from mistify.wire.errors import attached_error
from mistify.wire.limits import MAX_MESSAGE_BYTES, MAX_METADATA_BYTES
from mistify_client.lending.links import Exchange
from mistify_client.rpc.connection import open_channel

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # a new session connects at once, whatever happened before
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

#: Seconds between two inferences whose transfer is measured, each of which costs a message. Probes always
#: measure it.
_ANNOUNCING_SECONDS: Final = 0.3

#: A helper's times must be within this multiple of the time on this device's clock, and this many more
#: milliseconds: nobody has to believe others, from which infinity and NaN would follow.
_BELIEVED: Final = 2.0
_BELIEVED_MS: Final = 10.0

#: The least milliseconds of a segment.
_LEAST_MS: Final = 1e-6


class HelperError(Exception):
    """A helper did not give an answer; the message says why."""


class LateError(HelperError):
    """An answer did not come in time; it may still come, and the session goes on."""


class Answered:
    """An answer, and the exchange that brought it."""

    def __init__(self, answer: pb.InferenceAnswer, sent: int, asked_at: float, answered_at: float) -> None:
        self.answer = answer
        self.exchange = Exchange(
            sent,
            sum(len(tensor.content) for tensor in answer.tensors),
            1e3 * (answered_at - asked_at),
            answer.serving_ms,
            answer.transfer_ms if answer.HasField("transfer_ms") else None,
        )

    @property
    def is_possible(self) -> bool:
        """False if the helper reports times that contradict the clock of this device."""
        times = self.answer.computing_ms, self.answer.serving_ms, self.exchange.transfer_ms or 0.0
        return all(0 <= each <= _believed_ms(self.exchange.wall_ms) for each in times)


class HelperStream:
    """A session with a helper, for one thread at a time. After an error other than `LateError`, it is over.

    Args:
        address: `host:port` or `tls://host:port` of the helper.
        token: Its token; None if it needs none.
        ca: PEM file with the certificates to trust.
    """

    def __init__(self, address: str, token: str | None, ca: Path | None) -> None:
        self.address = address
        self._channel = open_channel(address, lambda: None if ca is None else ca.read_bytes(), _OPTIONS)
        self._requests: SimpleQueue[pb.RunRequest | None] = SimpleQueue()
        self._responses: SimpleQueue[tuple[pb.RunResponse | HelperError, float]] = SimpleQueue()
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self._call = LendingStub(self._channel).Run(iter(self._requests.get, None), metadata=metadata)  # type: ignore[no-untyped-call]
        self._number = 0
        self._announced_at = 0.0
        self._owed: tuple[int, float] | None = None
        threading.Thread(target=self._receive, name="mistify-helper-answers", daemon=True).start()

    def load(self, digests: Sequence[str], starts: Sequence[int], seconds: float) -> pb.NetworkReady:
        """Name the network of the session, and wait until the helper has loaded it.

        Args:
            digests: SHA-256 of each block in hex.
            starts: Indices of the blocks with which its segments begin.
            seconds: Time until the deadline.

        Returns:
            The milliseconds of each segment there, and the rate that the helper grants.

        Raises:
            HelperError: The helper has not loaded it.
        """
        began = time.perf_counter()
        self._requests.put(pb.RunRequest(network=pb.NetworkOfBlocks(blocks=digests, starts=starts)))
        response, loaded_at = self._received(seconds)
        times, most = response.ready.segment_ms, _believed_ms(1e3 * (loaded_at - began))
        if len(times) != len(starts) or not all(_LEAST_MS <= one <= most for one in times):
            raise self._impossible()
        return response.ready

    @property
    def owes_since(self) -> float | None:
        """The time of the last request if it is unanswered, in seconds of `time.perf_counter`."""
        return None if self._owed is None else self._owed[1]

    def late(self) -> Iterator[Answered]:
        """Yield the answer to the last request if it has come after its deadline.

        Raises:
            HelperError: The session is over.
        """
        if self._owed is not None and not self._responses.empty():
            yield self._answered(0.0)

    def ask_inference(
        self, start: int, end: int, tensors: Sequence[pb.TensorContent], seconds: float
    ) -> Answered:
        """Send an inference that measures the link, and wait for its answer.

        Args:
            start: Index of the first segment to run.
            end: Index of the segment behind the last one.
            tensors: The inputs of the first segment.
            seconds: Time until the deadline.

        Raises:
            LateError: The deadline has passed.
            HelperError: The session is over.
        """
        self._send_inference(start, end, tensors, measured=True)
        return self.answered(seconds)

    def send_inference(
        self, start: int, end: int, tensors: Sequence[pb.TensorContent], *, rounded_answer: bool = False
    ) -> None:
        """Send an inference, whose answer `answered` returns.

        Args:
            start: Index of the first segment to run.
            end: Index of the segment behind the last one.
            tensors: The inputs of the first segment.
            rounded_answer: Let the helper round its answer to bytes.
        """
        self._send_inference(start, end, tensors, rounded_answer=rounded_answer)

    def _send_inference(
        self,
        start: int,
        end: int,
        tensors: Sequence[pb.TensorContent],
        *,
        measured: bool = False,
        rounded_answer: bool = False,
    ) -> None:
        request = pb.InferenceRequest(
            number=self._number + 1, segment=start, end=end, tensors=tensors, rounded_answer=rounded_answer
        )
        size = sum(len(tensor.content) for tensor in tensors)
        self._send(pb.RunRequest(inference=request), size, measured=measured)

    def probe(self, size: int, seconds: float) -> Answered:
        """Measure the link by a message of some bytes.

        Raises:
            LateError: The deadline has passed.
            HelperError: The session is over.
        """
        self._send(
            pb.RunRequest(probe=pb.Probe(number=self._number + 1, content=bytes(size))), size, measured=True
        )
        return self.answered(seconds)

    def answered(self, seconds: float) -> Answered:
        """Return the answer to the request that was sent last.

        Args:
            seconds: Time until the deadline, from now on.

        Raises:
            LateError: The deadline has passed.
            HelperError: The session is over.
        """
        return self._answered(seconds)

    def close(self) -> None:
        """End the session."""
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()

    def _send(self, request: pb.RunRequest, size: int, *, measured: bool) -> None:
        self._number += 1
        self._size = size
        now = time.perf_counter()
        self._owed = (self._number, now)
        if measured or now - self._announced_at >= _ANNOUNCING_SECONDS:
            self._announced_at = now
            self._requests.put(pb.RunRequest(announcement=pb.Announcement()))
        self._requests.put(request)

    def _answered(self, seconds: float) -> Answered:
        response, at = self._received(seconds)
        if self._owed is None or response.answer.number != self._owed[0]:
            raise HelperError(f"{self.address} answered a request that was not sent")
        (_, asked_at), self._owed = self._owed, None
        answered = Answered(response.answer, self._size, asked_at, at)
        if not answered.is_possible:
            raise self._impossible()
        return answered

    def _received(self, seconds: float) -> tuple[pb.RunResponse, float]:
        try:
            response, at = self._responses.get(timeout=seconds) if seconds > 0 else self._responses.get(False)
        except Empty as error:
            message = f"{self.address} did not answer within {1e3 * seconds:.0f} ms"
            raise LateError(message) from error
        if isinstance(response, HelperError):
            self._responses.put((response, at))  # for later calls as well
            raise response
        return response, at

    def _impossible(self) -> HelperError:
        return HelperError(f"{self.address} reports impossible times")

    def _receive(self) -> None:
        """Pass on the helper's responses, and at last the reason why there are no more."""
        try:
            for response in self._call:
                self._responses.put((response, time.perf_counter()))
            error = HelperError(f"{self.address} ended the session")
        except grpc.RpcError as failed:
            error = HelperError(_reason(failed, self.address))
        except Exception as failed:  # a message that cannot be parsed
            error = HelperError(f"{self.address} sent something else than an answer: {failed}")
        self._responses.put((error, time.perf_counter()))


def _believed_ms(wall_ms: float) -> float:
    return _BELIEVED * wall_ms + _BELIEVED_MS


def _reason(call: Any, address: str) -> str:
    attached = attached_error(call.trailing_metadata())
    if attached is not None:
        return f"{address} refused: {attached.message}"
    if call.code() is grpc.StatusCode.UNAVAILABLE:
        return f"{address} cannot be reached: {call.details()}"
    return f"{address} failed with {call.code().name}: {call.details()}"
