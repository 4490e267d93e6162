"""The client of the files service: uploads models and data that the server lacks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from mistify.uploads import FileDigest
from mistify.v1 import files_pb2 as pb
from mistify.v1.files_pb2_grpc import FilesStub
from mistify_client.rpc.base import ServiceClient
from mistify_client.rpc.retry import retried

#: Deadlines of the calls, in seconds. Interrupted uploads are resumed.
FIND_SECONDS: Final = 30.0
UPLOAD_SECONDS: Final = 3600.0

#: Maximum number of files per request.
_FILES_PER_CALL: Final = 1_000

_CHUNK: Final = 1 << 20


class FilesClient(ServiceClient):
    """A client of the files service. All methods wait for an unreachable server."""

    @cached_property
    def _stub(self) -> FilesStub:
        return FilesStub(self._connection.channel)  # type: ignore[no-untyped-call]  # generated code

    def missing(self, files: Sequence[FileDigest], *, for_job: bool = False) -> Iterator[FileDigest]:
        """Yield the files that are not complete on the server.

        Args:
            for_job: Whether they are for a new job.

        Raises:
            MistifyError: QUOTA_EXCEEDED, they exceed the caller's limit on uploads, or some are missing and
                the caller may have no further job.
        """
        for start in range(0, len(files), _FILES_PER_CALL):
            part = files[start : start + _FILES_PER_CALL]
            for file, state in zip(part, self._states(part, for_job=for_job), strict=True):
                if not state.complete:
                    yield file

    def send(self, paths: Mapping[FileDigest, Path]) -> None:
        """Upload files; resume each one after the last received byte.

        Raises:
            MistifyError: NO_ROOM or QUOTA_EXCEEDED, the upload exceeds a limit; INVALID_DATASET, a file has
                changed in the meantime.
            OSError: A file cannot be read.
        """
        for file, path in paths.items():
            retried(partial(self._send_rest, file, path), self._backoff)

    def _send_rest(self, file: FileDigest, path: Path) -> None:
        (state,) = self._states([file])
        if not state.complete:
            requests = _requests(file, path, state.arrived)
            self._connection.call(self._stub.UploadFile, requests, UPLOAD_SECONDS)

    def _states(self, files: Sequence[FileDigest], *, for_job: bool = False) -> Sequence[pb.FileState]:
        request = pb.FindFilesRequest(files=map(_message, files), for_job=for_job)
        call = self._connection.call
        answer: pb.FindFilesResponse = retried(
            lambda: call(self._stub.FindFiles, request, FIND_SECONDS), self._backoff
        )
        return answer.states


def _requests(file: FileDigest, path: Path, offset: int) -> Iterator[pb.UploadFileRequest]:
    yield pb.UploadFileRequest(header=pb.UploadHeader(file=_message(file), offset=offset))
    try:
        with path.open("rb") as content:
            content.seek(offset)
            while chunk := content.read(_CHUNK):
                yield pb.UploadFileRequest(data=chunk)
    except OSError as error:
        error.filename = str(path)  # an error of reading lacks it
        raise


def _message(file: FileDigest) -> pb.FileDigest:
    return pb.FileDigest(sha256=file.sha256, size=file.size)
