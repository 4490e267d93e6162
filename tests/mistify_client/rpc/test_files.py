"""Files that cannot be read any more when they are uploaded."""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.uploads import FileDigest
from mistify.v1 import files_pb2 as pb
from mistify.v1.files_pb2_grpc import FilesServicer, add_FilesServicer_to_server
from mistify_client.porting.local_files import LocalFiles
from mistify_client.rpc.files import FilesClient


class Empty(FilesServicer):
    """A server that has no files yet."""

    def FindFiles(self, request: pb.FindFilesRequest, context: object) -> pb.FindFilesResponse:  # noqa: N802
        return pb.FindFilesResponse(states=[pb.FileState() for _ in request.files])

    def UploadFile(self, requests: Iterator[object], context: object) -> pb.UploadFileResponse:  # noqa: N802
        list(requests)
        return pb.UploadFileResponse()


@pytest.fixture
def client() -> Iterator[FilesClient]:
    server = grpc.server(ThreadPoolExecutor(1))
    add_FilesServicer_to_server(Empty(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with FilesClient(f"127.0.0.1:{port}") as opened:
        yield opened
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("replace", "reason"),
    [
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to("/proc/self/mem"), "Input/output error"),
        (lambda path: None, "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_any_more_is_named_with_the_cause(
    client: FilesClient,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    replace: Callable[[Path], object],
    reason: str,
) -> None:
    path = tmp_path / "train.npz"
    replace(path)
    files = LocalFiles("{}", {FileDigest(hashlib.sha256(b"content").hexdigest(), 7): path})
    with pytest.raises(MistifyError) as caught:
        files.send(client, lambda line: None)
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert caught.value.message == f"{path} cannot be read ({reason}); check its permissions"
    assert caplog.text == ""


def test_an_answer_to_the_part_of_a_file_that_could_be_read_is_no_success(
    client: FilesClient, tmp_path: Path
) -> None:
    upload = client._stub.UploadFile

    class AnsweredAtOnce:
        """An upload that has ended before its caller has the call and could cancel it."""

        def future(self, *arguments: Any, **options: Any) -> Any:
            call = upload.future(*arguments, **options)
            call.result()
            return call

    client._stub.UploadFile = AnsweredAtOnce()
    missing = tmp_path / "train.npz"
    with pytest.raises(FileNotFoundError) as caught:
        client.send({FileDigest(hashlib.sha256(b"content").hexdigest(), 7): missing})
    assert caught.value.filename == str(missing)
