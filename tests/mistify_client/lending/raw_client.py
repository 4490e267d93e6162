"""A device that sends any requests to a helper, including those that no device should send."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc

from mistify.errors import MistifyError
from mistify.package.blocks import BlockStore, BlockVariant
from mistify.v1 import lending_pb2 as pb
from mistify.v1.lending_pb2_grpc import LendingStub
from mistify.wire.errors import attached_error
from mistify_client.assembly.executions import Array
from mistify_client.lending.tensors import message_of
from tests.mistify_client.lending.conftest import TOKEN


class RawClient:
    """Sends requests on one stream, and returns the responses."""

    def __init__(self, channel: grpc.Channel, token: str | None) -> None:
        self._requests: SimpleQueue[pb.RunRequest | None] = SimpleQueue()
        metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        self._call = LendingStub(channel).Run(iter(self._requests.get, None), metadata=metadata)  # type: ignore[no-untyped-call]

    def send(self, **content: Any) -> None:
        self._requests.put(pb.RunRequest(**content))

    def received(self) -> pb.RunResponse:
        """Return the next response; raise the helper's error as a device gets it."""
        try:
            return next(self._call)
        except grpc.RpcError as error:
            attached = attached_error(error.trailing_metadata())
            raise error if attached is None else attached from error

    def asked(self, **content: Any) -> pb.RunResponse:
        self.send(**content)
        return self.received()

    def refused(self, **content: Any) -> MistifyError:
        """Return the error for a request."""
        try:
            self.asked(**content)
        except MistifyError as error:
            return error
        raise AssertionError("it was not refused")

    def end(self) -> None:
        self._requests.put(None)
        self._call.cancel()


@contextmanager
def raw_client(address: str, token: str | None = TOKEN) -> Iterator[RawClient]:
    with grpc.insecure_channel(address) as channel:
        client = RawClient(channel, token)
        try:
            yield client
        finally:
            client.end()


def original(package: Path) -> tuple[BlockStore, tuple[BlockVariant, ...]]:
    """Return the block store of a package, and the blocks of its own network."""
    store = BlockStore.load(package)
    return store, store.network_of(store.served)


def network_message(package: Path) -> pb.NetworkOfBlocks:
    blocks = original(package)[1]
    return pb.NetworkOfBlocks(blocks=[block.content.sha256 for block in blocks], starts=range(len(blocks)))


def inference(
    package: Path, number: int, segment: int, tensors: dict[str, Array], end: int = 0
) -> pb.InferenceRequest:
    store, blocks = original(package)
    expected = store.tensors_at(blocks[segment].start)
    messages = [message_of(tensors[each.name]) for each in expected]
    return pb.InferenceRequest(number=number, segment=segment, end=end, tensors=messages)
