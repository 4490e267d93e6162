"""A helper as seen from this device: connected in the background, with measured link and speed."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from mistify.errors import MistifyError
from mistify.v1 import lending_pb2 as pb
from mistify_client.assembly.executions import Array, Tensors
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.cuts import cuts_of
from mistify_client.lending.links import MEASURING_BYTES, HelperSpeed, Link
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.rate_limit import RateLimit
from mistify_client.lending.status import NOT_CONNECTED
from mistify_client.lending.streams import Answered, HelperError, HelperStream, LateError
from mistify_client.lending.tensors import (
    arrays_of,
    checked_contents,
    message_of,
    narrow_message_of,
    rounded_message_of,
    zeros_of,
)

#: Seconds for connecting and for loading the network on the helper.
_LOADING_SECONDS: Final = 70.0

#: Seconds without a measurement of the link after which it is measured by a probe.
_PROBE_SECONDS: Final = 5.0

#: Seconds for the answer to a probe, and for an answer that is late, until the helper counts as gone.
_GONE_SECONDS: Final = 10.0

#: Seconds to wait for the end of a probe before an inference.
_BUSY_SECONDS: Final = 0.02

#: The most bytes of a probe.
_PROBE_BYTES: Final = 65536

#: The number of probes after connecting, and when a probe shows a change: estimates are medians of recent
#: messages, and three of them decide.
_PROBES: Final = 3

#: Seconds until a helper that failed is used again; doubled with each failure.
_LEAST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0

#: The share of the rate that a helper grants which is used, because messages travel at different speeds.
_USED: Final = 0.9

#: Seconds without a helper that gave a wrong answer.
WRONG_SECONDS: Final = 3600.0

logger = logging.getLogger(__name__)


class RemoteHelper:
    """A helper of this device for one network.

    One thread asks for inferences. The helper's own thread connects, tries again after failures, and measures
    the link while it is not used.

    Attributes:
        address: `host:port` or `tls://host:port`.
        link: Measured times of the connection.
        speed: Its speed; None before it has loaded the network.
        problem: Why it is not used; empty while it is.
        is_trusted: Whether an answer of this session has been found right.
    """

    def __init__(
        self,
        address: str,
        network: BlockNetwork,
        config: LendingConfig,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.address = address
        self.link = Link()
        self.speed: HelperSpeed | None = None
        self.problem = NOT_CONNECTED
        self.is_trusted = False
        self._network = network
        small = (cut for cut in cuts_of(network) if cut.size <= _PROBE_BYTES)
        self._probing_cut = max(small, key=lambda cut: cut.size, default=None)
        self._config = config
        self._clock = clock
        self._rate: RateLimit | None = None
        self._stream: HelperStream | None = None
        self._using = threading.Lock()
        self._pause = _LEAST_PAUSE
        self._rests_until = 0.0
        self._measured_at = 0.0
        self._closed = False
        self._changed = threading.Event()
        self._is_maintained = False
        self._begin()

    def _begin(self) -> None:
        """Start the thread of the helper; if there are too many, it is tried again later."""
        try:
            threading.Thread(target=self._maintain, name="mistify-helper", daemon=True).start()
        except RuntimeError as error:
            self._rest(f"{self.address} cannot be asked: {error}")
        else:
            self._is_maintained = True

    @property
    def is_available(self) -> bool:
        """True if it can be asked for an inference now."""
        if not self._is_maintained and self._clock() >= self._rests_until:
            self._begin()
        stream = self._stream
        if stream is None or self._clock() < self._rests_until or not self._using.acquire(blocking=False):
            return False
        try:
            return stream.owes_since is None or self._late_answer_came(stream)
        finally:
            self._using.release()

    def spend(self, count: int = 1) -> bool:
        """Count some inferences as asked for; return False, and count none, if it does not grant them now."""
        return self._rate is None or self._rate.spend(count)

    def start(self, start: int, end: int, tensors: Tensors) -> int:
        """Send an inference, whose outputs `finish` returns.

        Args:
            start: Index of the first segment that the helper runs.
            end: Index of the segment behind the last one.
            tensors: The inputs of the first segment by name, for one example.

        Returns:
            The number of bytes sent.

        Raises:
            HelperError: It cannot be asked now.
        """
        stream = self._stream
        if stream is None or not self._using.acquire(timeout=_BUSY_SECONDS):
            raise HelperError(f"{self.address} is busy or gone")
        try:
            self._asked = start, end
            messages = self._messages(start, tensors)
            stream.send_inference(start, end, messages, rounded_answer=end in self._network.rounded)
        except BaseException:  # such as too little memory
            self._using.release()
            raise
        return sum(len(message.content) for message in messages)

    def finish(self, seconds: float) -> dict[str, Array]:
        """Return the outputs of the segments that were started.

        Args:
            seconds: Time until the deadline.

        Raises:
            HelperError: There is no right answer within the time; the helper is not used for a while.
        """
        try:
            stream = self._stream
            if stream is None:
                raise HelperError(self.problem)
            answered = stream.answered(seconds)
            outputs = self._network.tensors_at(self._asked[1])
            contents = checked_contents(answered.answer.tensors, outputs)
        except LateError as error:
            self._rest(str(error))
            raise
        except (HelperError, MistifyError) as error:
            message = str(error) if isinstance(error, HelperError) else f"{self.address}: {error.message}"
            self.drop(message)
            raise HelperError(message) from error
        finally:
            self._using.release()
        self._observe(answered)
        self._pause = _LEAST_PAUSE
        return arrays_of(contents, outputs)

    def abandon(self) -> None:
        """Do not wait for the outputs of the inference that was started; they are ignored when they come."""
        self._using.release()

    def drop(self, problem: str, seconds: float = 0.0) -> None:
        """End the session, and begin another one after a pause.

        Args:
            problem: Why the helper is not used for a while.
            seconds: The least pause.
        """
        self._rest(problem, seconds)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._changed.set()

    def close(self) -> None:
        """End the session for good."""
        self._closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._changed.set()

    def _rest(self, problem: str, seconds: float = 0.0) -> None:
        """Do not use the helper for a while, which is longer with each failure."""
        self._rests_until = self._clock() + max(seconds, self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        if problem != self.problem:
            logger.warning("the blocks run on this device: %s", problem)
        self.problem = problem

    def _late_answer_came(self, stream: HelperStream) -> bool:
        """Take a late answer if it has come; for the thread that uses the helper: only one can take it."""
        try:
            for answered in stream.late():
                self._observe(answered)
        except HelperError as error:
            self.drop(str(error))
            return False
        return stream.owes_since is None

    def _observe(self, answered: Answered) -> None:
        self.problem = ""
        self.link.observe(answered.exchange)
        if answered.answer.tensors and self.speed is not None:
            answer = answered.answer
            self.speed.observe(*self._asked, answer.computing_ms, answer.serving_ms)
            if answered.exchange.sent >= MEASURING_BYTES:
                self._measured_at = self._clock()

    def _maintain(self) -> None:
        """Connect, measure the link while it is not used, and connect again after a failure."""
        while not self._closed:
            self._changed.clear()
            self._wait(self._rests_until - self._clock())
            if self._closed:
                break
            try:
                stream = self._connected()
                self._changed.clear()
                self.is_trusted = False
                self._stream = stream
                logger.info("%s helps", self.address)
                while self._stream is stream and not self._closed:
                    self._changed.wait(_PROBE_SECONDS)
                    self._look_after(stream)
            except HelperError as error:
                self._rest(str(error))
            except Exception as error:  # such as too little memory: nobody else would connect again
                self.drop(f"{self.address} cannot be asked: {type(error).__name__}: {error}")
        self.close()  # also a session that has begun since then

    def _connected(self) -> HelperStream:
        """Begin a session, load the network, and measure the link.

        Raises:
            HelperError: The helper cannot be asked, or does not answer as it should.
        """
        stream = self._opened()
        try:
            ready = stream.load(self._network.digests, self._network.starts, _LOADING_SECONDS)
            self.speed = HelperSpeed(ready.segment_ms)
            self._rate = RateLimit(ready.rate, _USED, self._clock) if ready.rate else None
            for _ in range(_PROBES):
                self._probe(stream)
        except BaseException:
            stream.close()
            raise
        return stream

    def _opened(self) -> HelperStream:
        """Begin a session, with the token and the certificate as they are now.

        Raises:
            HelperError: A file cannot be read, for example while it is being replaced; or there are too many
                threads.
        """
        try:
            return HelperStream(self.address, self._config.token(), self._config.ca)
        except (MistifyError, OSError, RuntimeError) as error:
            raise HelperError(f"{self.address} cannot be asked: {error}") from error

    def _look_after(self, stream: HelperStream) -> None:
        """Measure the link if nothing else did, and give up a helper that owes an answer for too long."""
        if self._stream is not stream or not self._using.acquire(blocking=False):
            return
        try:
            owes_since = stream.owes_since
            if owes_since is not None and not self._late_answer_came(stream):
                if time.perf_counter() - owes_since > _GONE_SECONDS:
                    self.drop(f"{self.address} does not answer any more")
            elif self._clock() - self._measured_at >= _PROBE_SECONDS:
                self._probe(stream)
                for _ in range(_PROBES - 1):
                    if self.link.has_changed or (self.speed is not None and self.speed.has_changed):
                        self._probe(stream)
        except HelperError as error:
            self.drop(str(error))
        finally:
            self._using.release()

    def _probe(self, stream: HelperStream) -> None:
        """Measure the round trip, the bandwidth and the speed of the helper, if its rate allows that."""
        cut = self._probing_cut
        is_small = cut is None or cut.size < MEASURING_BYTES
        if not self.spend(1 + (cut is not None) + is_small):
            return
        self._observe(stream.probe(0, _GONE_SECONDS))
        if cut is not None:
            self._asked = cut.segment, len(self._network.starts)
            messages = self._messages(cut.segment, zeros_of(self._network.inputs_of(cut.segment)))
            self._observe(stream.ask_inference(*self._asked, messages, _GONE_SECONDS))
        if is_small:
            self._observe(stream.probe(_PROBE_BYTES, _GONE_SECONDS))
        self._measured_at = self._clock()

    def _messages(self, cut: int, tensors: Tensors) -> list[pb.TensorContent]:
        """Return the tensors before a segment as they are sent."""
        inputs = narrow_message_of if cut == 0 else message_of
        message = rounded_message_of if cut in self._network.rounded else inputs
        return [message(tensors[tensor.name]) for tensor in self._network.inputs_of(cut)]

    def _wait(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not self._closed and (left := ends - time.monotonic()) > 0:
            self._changed.wait(min(left, 0.2))
            self._changed.clear()
