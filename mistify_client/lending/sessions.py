"""A session of a helper with another device: one network, and one inference after the other."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from mistify.errors import ErrorCode, MistifyError
from mistify.v1 import lending_pb2 as pb
from mistify_client.lending.packages import BlockNetwork, LentPackages
from mistify_client.lending.quotas import Quotas
from mistify_client.lending.rate_limit import RateLimit
from mistify_client.lending.tensors import arrays_of, checked_contents, message_of, rounded_message_of
from mistify_client.lending.worker_process import WorkerProcess

#: Largest content of a probe, in bytes.
PROBE_BYTES = 65536


class Session:
    """Answers the requests of one device, on one thread. Another one may call `kill`.

    Args:
        packages: The packages whose blocks may run.
        clock: Returns seconds.
    """

    def __init__(
        self, packages: LentPackages, quotas: Quotas, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._packages = packages
        self._quotas = quotas
        self._clock = clock
        self._rate = RateLimit(quotas.rate, clock=clock)
        self._network: BlockNetwork | None = None
        self._worker: WorkerProcess | None = None
        self._announced: float | None = None
        self._last = 0

    def responses(self, requests: Iterator[pb.RunRequest]) -> Iterator[pb.RunResponse]:
        """Yield the response to each request that has one.

        Raises:
            MistifyError: A request is not allowed; nothing was done for it.
        """
        for request in requests:
            arrived = self._clock()
            match request.WhichOneof("content"):
                case "network":
                    yield self._load(request.network)
                case "announcement":
                    if self._announced is not None:
                        raise _out_of_order("an announcement without a request after it")
                    self._announced = arrived
                case "inference":
                    yield self._answer(request.inference, arrived, self._run)
                case "probe":
                    yield self._answer(request.probe, arrived, self._probe)
                case _:
                    raise _out_of_order("an empty request, or one of a newer version")

    def kill(self) -> None:
        """End the process of the blocks, from any thread."""
        if self._worker is not None:
            self._worker.kill()

    def close(self) -> None:
        """Unload the network."""
        if self._worker is not None:
            self._worker.close()

    def _load(self, message: pb.NetworkOfBlocks) -> pb.RunResponse:
        if self._network is not None:
            raise _out_of_order("a second network")
        if not message.blocks:
            raise _out_of_order("a network without blocks")
        network = self._packages.network(message.blocks, message.starts)
        self._worker = WorkerProcess(network, self._quotas.worker)
        self._network = network
        ready = pb.NetworkReady(segment_ms=self._worker.segment_ms, rate=self._quotas.rate)
        return pb.RunResponse(ready=ready)

    def _answer(
        self, request: Any, arrived: float, answer: Callable[[Any], pb.InferenceAnswer]
    ) -> pb.RunResponse:
        """Return the answer to an inference or a probe, with its times."""
        if not self._rate.spend():
            raise MistifyError(
                ErrorCode.NO_ROOM,
                f"more than {self._quotas.rate:g} inferences a second; start the helper with a higher --rate",
            )
        if request.number <= self._last:
            raise _out_of_order(f"the number {request.number} after {self._last}")
        self._last = request.number
        message = answer(request)
        message.number = request.number
        if self._announced is not None:
            message.transfer_ms = 1e3 * (arrived - self._announced)
            self._announced = None
        message.serving_ms = 1e3 * (self._clock() - arrived)
        return pb.RunResponse(answer=message)

    def _run(self, request: pb.InferenceRequest) -> pb.InferenceAnswer:
        if self._network is None or self._worker is None:
            raise _out_of_order("an inference before a network")
        count = len(self._network.starts)
        end = request.end or count
        if not request.segment < end <= count:
            raise _out_of_order(f"segments from {request.segment} to {end} of {count}")
        inputs = self._network.inputs_of(request.segment)
        outputs = self._network.tensors_at(end)
        if request.rounded_answer and (end == count or any(each.dtype != "float32" for each in outputs)):
            raise _out_of_order("a request to round outputs of the network, or numbers that are not float32")
        contents = checked_contents(request.tensors, inputs)
        computed, computing_ms = self._worker.run(request.segment, end, contents)
        message = rounded_message_of if request.rounded_answer else message_of
        tensors = [message(array) for array in arrays_of(computed, outputs).values()]
        return pb.InferenceAnswer(tensors=tensors, computing_ms=computing_ms)

    def _probe(self, request: pb.Probe) -> pb.InferenceAnswer:
        if len(request.content) > PROBE_BYTES:
            raise _out_of_order(f"a probe of {len(request.content)} bytes")
        return pb.InferenceAnswer()


def _out_of_order(what: str) -> MistifyError:
    return MistifyError(ErrorCode.INVALID_DATASET, f"got {what}; the session was ended")
