"""Uploads with wrong sizes, in any order and cut off: a file is whole, or its rest can be sent."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from threading import Event
from typing import Any

import grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from mistify.uploads import FileDigest
from mistify.v1 import files_pb2 as pb
from mistify.v1.files_pb2_grpc import FilesStub
from mistify_client.rpc.files import FilesClient
from mistify_server.server import running_server
from tests.support.efforts import with_effort

CONTENTS = (b"", b"a" * 10, bytes(range(256)) * 40)

#: Statuses of gRPC that say nothing to a caller, or that the call did not end.
USELESS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED)

#: Statuses of HTTP that tell what is wrong with an upload; 503 if the one before has not ended yet.
TELLING = (200, 400, 409, 413, 422, 503)


@dataclass(frozen=True)
class Sent:
    """An upload as sent.

    Attributes:
        number: Of the content that is announced.
        size: The announced size in bytes.
        pieces: The first and the last byte of each piece of the content.
        extra: Sent after the pieces.
        is_cut: Whether the connection is closed before the end.
    """

    number: int
    offset: int
    size: int
    pieces: tuple[tuple[int, int], ...]
    extra: bytes
    is_cut: bool
    by_http: bool

    @property
    def digest(self) -> str:
        return sha256(CONTENTS[self.number]).hexdigest()

    @property
    def data(self) -> list[bytes]:
        content = CONTENTS[self.number]
        return [*(content[start:end] for start, end in self.pieces), self.extra]


@st.composite
def uploads(draw: st.DrawFn) -> Sent:
    number = draw(st.integers(0, len(CONTENTS) - 1))
    length = len(CONTENTS[number])
    places = st.sampled_from([0, 1, 5, length // 2, max(length - 1, 0), length])
    offset, whole = draw(places), draw(st.booleans())
    pieces = [(offset, length)] if whole else draw(st.lists(st.tuples(places, places), max_size=3))
    return Sent(
        number,
        draw(st.just(offset) | st.sampled_from([-1, 0, length + 1, 2**62])),
        draw(st.just(length) | st.sampled_from([-1, 0, 3, length + 1, 2**62])),
        tuple(pieces),
        draw(st.sampled_from([b"", b"", b"x", bytes(300_000)])),
        draw(st.booleans()),
        draw(st.booleans()),
    )


class Client:
    """Sends uploads to a server.

    Attributes:
        address: Of the server for gRPC.
    """

    def __init__(self, address: str, url: str) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(address)
        self._files = FilesStub(self._channel)
        host, port = url.removeprefix("http://").strip("/").split(":")
        self._http = host, int(port)

    def close(self) -> None:
        self._channel.close()

    def send(self, sent: Sent) -> None:
        """Send an upload, and check that its answer tells what is wrong with it."""
        if not sent.by_http:
            self._send_by_grpc(sent)
        elif sent.is_cut:
            self._send_a_part_by_http(sent)
        else:
            self._send_by_http(sent)

    def arrived(self, number: int) -> tuple[bool, int]:
        """Return whether a content is complete, and how many bytes of it have arrived."""
        content = CONTENTS[number]
        file = pb.FileDigest(sha256=sha256(content).hexdigest(), size=len(content))
        (state,) = self._files.FindFiles(pb.FindFilesRequest(files=[file]), timeout=30).states
        return state.complete, state.arrived

    def _send_by_grpc(self, sent: Sent) -> None:
        header = pb.UploadHeader(file=pb.FileDigest(sha256=sent.digest, size=sent.size), offset=sent.offset)

        def requests() -> Iterator[pb.UploadFileRequest]:
            yield pb.UploadFileRequest(header=header)
            for data in sent.data:
                yield pb.UploadFileRequest(data=data)
            if sent.is_cut:
                started.wait()
                call.cancel()

        started = Event()
        call = self._files.UploadFile.future(requests(), timeout=30)
        started.set()
        with suppress(grpc.FutureCancelledError):
            assert call.exception() is None or call.code() not in USELESS, call

    def _send_by_http(self, sent: Sent) -> None:
        data = b"".join(sent.data)
        span = f"bytes {sent.offset}-{sent.offset + len(data) - 1}/{sent.size}"
        with closing(HTTPConnection(*self._http, timeout=30)) as connection:
            connection.request("PUT", f"/v1/files/{sent.digest}", data, {"Content-Range": span})
            response = connection.getresponse()
            assert response.status in TELLING, response.read()

    def _send_a_part_by_http(self, sent: Sent) -> None:
        data = b"".join(sent.data)
        head = (
            f"PUT /v1/files/{sent.digest} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Range: bytes {sent.offset}-{sent.size - 1}/{sent.size}\r\n"
            f"Content-Length: {len(data) + 1}\r\n\r\n"
        )
        with socket.create_connection(self._http, timeout=30) as connection:
            connection.sendall(head.encode() + data)


@with_effort
async def test_random_uploads_leave_whole_files_or_ones_to_continue(site: Any, effort: settings) -> None:
    async with running_server(site.settings(http="127.0.0.1:0")) as (address, url):
        with closing(Client(address, str(url))) as client:
            await asyncio.to_thread(send_random_uploads, client, site.store, effort)


def send_random_uploads(client: Client, store: Path, effort: settings) -> None:
    @effort
    @given(st.lists(uploads(), min_size=1, max_size=4))
    def check(sent: list[Sent]) -> None:
        for each in sent:
            client.send(each)
        for path in (store / "uploads").rglob("files/*/*"):
            assert sha256(path.read_bytes()).hexdigest() == path.name
        for number, content in enumerate(CONTENTS):
            is_complete, arrived = client.arrived(number)
            if is_complete:
                assert arrived == len(content)

    check()
    with FilesClient(client.address) as files:
        for number, content in enumerate(CONTENTS):
            path = store.with_name("content")
            path.write_bytes(content)
            files.send({FileDigest(sha256(content).hexdigest(), len(content)): path})
            assert client.arrived(number) == (True, len(content))
