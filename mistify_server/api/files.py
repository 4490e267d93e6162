"""Servicer of uploads."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from mistify.errors import ErrorCode, MistifyError
from mistify.uploads import FileDigest
from mistify.v1 import files_pb2 as pb
from mistify.v1 import files_pb2_grpc
from mistify_server.identity.callers import current_caller
from mistify_server.identity.tenants import ByTenant
from mistify_server.store.uploads import Uploads


class FilesServicer(files_pb2_grpc.FilesServicer):
    """Adapter from gRPC to the uploads of the caller's tenant.

    Args:
        check_job: Raises an error if the caller may have no further job.
    """

    def __init__(self, uploads: ByTenant[Uploads], check_job: Callable[[], Awaitable[None]]) -> None:
        self._uploads = uploads
        self._check_job = check_job

    async def FindFiles(self, request: pb.FindFilesRequest, context: Any) -> pb.FindFilesResponse:  # noqa: N802
        """Return how much of each file has been received."""
        files, sender, uploads = list(map(_digest, request.files)), current_caller().name, self._uploads.own
        await asyncio.to_thread(uploads.check_room, files, sender)
        states = await asyncio.to_thread(lambda: list(map(uploads.state, files)))
        if request.for_job and not all(state.complete for state in states):
            await self._check_job()
        return pb.FindFilesResponse(
            states=[pb.FileState(complete=state.complete, arrived=state.arrived) for state in states]
        )

    async def UploadFile(  # noqa: N802
        self, requests: AsyncIterator[pb.UploadFileRequest], context: Any
    ) -> pb.UploadFileResponse:
        """Receive a file."""
        async for request in requests:
            header = request.header
            data = (request.data async for request in requests)
            sender = current_caller().name
            await self._uploads.own.receive(_digest(header.file), header.offset, data, sender)
            return pb.UploadFileResponse()
        raise MistifyError(ErrorCode.INVALID_DATASET, "the upload has no header; send it first")


def _digest(message: pb.FileDigest) -> FileDigest:
    return FileDigest(message.sha256, message.size)
