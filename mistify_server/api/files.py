"""Servicer of uploads."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from mistify.errors import ErrorCode, MistifyError
from mistify.uploads import FileDigest
from mistify.v1 import files_pb2 as pb
from mistify.v1 import files_pb2_grpc
from mistify_server.store.uploads import Uploads


class FilesServicer(files_pb2_grpc.FilesServicer):
    """Adapter from gRPC to `Uploads`."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads

    async def FindFiles(self, request: pb.FindFilesRequest, context: Any) -> pb.FindFilesResponse:  # noqa: N802
        """Return how much of each file has been received."""
        states = await asyncio.to_thread(
            lambda: [self._uploads.state(_digest(file)) for file in request.files]
        )
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
            await self._uploads.receive(_digest(header.file), header.offset, data)
            return pb.UploadFileResponse()
        raise MistifyError(ErrorCode.INVALID_DATASET, "the upload has no header; send it first")


def _digest(message: pb.FileDigest) -> FileDigest:
    return FileDigest(message.sha256, message.size)
