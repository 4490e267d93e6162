"""TLS records of a server: each connection keeps buffers of their maximum size."""

import socket
from contextlib import closing, suppress
from pathlib import Path

import grpc
from typing_extensions import override

from mistify.v1 import porting_pb2 as pb
from mistify.v1 import porting_pb2_grpc
from tests.end_to_end.test_tls import certified
from tests.support.published import publish
from tests.support.relay import Relay
from tests.support.servers import server
from tests.support.signed_packages import write_package

JOB, GOAL, FILE = "20260101-000000-00000000", "phone", "serve.tflite"
CONTENT = bytes(range(256)) * 400

#: Bytes of the head of a record, which end with the size of the rest.
HEAD = 5


class Recording(Relay):
    """A relay that keeps what the server sends."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.sent = bytearray()

    @override
    def _pass_on(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        if is_client:
            super()._pass_on(source, target, is_client)
        with suppress(OSError):
            while not is_client and (data := source.recv(65536)):
                self.sent += data
                target.sendall(data)

    def records(self) -> list[int]:
        """Return the sizes of the server's complete records."""
        sizes, at = [], 0
        while at + HEAD <= len(self.sent):
            sizes.append(int.from_bytes(self.sent[at + HEAD - 2 : at + HEAD]))
            at += HEAD + sizes[-1]
        return sizes


def test_a_long_message_fills_no_large_buffer(tmp_path: Path) -> None:
    publish(tmp_path / "store", JOB, [write_package(tmp_path / GOAL, {FILE: CONTENT})])
    with (
        server(tmp_path / "store", *certified(tmp_path, "127.0.0.1")) as (address, _),
        closing(Recording(address.removeprefix("tls://"))) as relay,
    ):
        trusted = grpc.ssl_channel_credentials((tmp_path / "authority.pem").read_bytes())
        with grpc.secure_channel(relay.address, trusted) as channel:
            stub = porting_pb2_grpc.PortingStub(channel)  # type: ignore[no-untyped-call]
            request = pb.FetchPackageRequest(job_id=JOB, goal_id=GOAL, file=FILE)
            received = b"".join(chunk.data for chunk in stub.FetchPackage(request, timeout=60))
        records = relay.records()
    assert received == CONTENT
    assert sum(records) > len(CONTENT)
    assert max(records) <= 8192
