"""Routes for uploads: models and data that configs refer to by content."""

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Header, Path, Request
from pydantic import BaseModel

from mistify.errors import ErrorCode, MistifyError
from mistify.uploads import FileDigest, UploadName
from mistify_server.identity.callers import current_caller
from mistify_server.identity.tenants import ByTenant
from mistify_server.store.uploads import FileState, Uploads
from mistify_server.web.problems import responses

_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


Sha256 = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The SHA-256 of the content, in hex")]


class Upload(BaseModel):
    """A complete file on the server, and its name for configs."""

    sha256: str
    size: int
    name: str


def upload_routes(uploads: ByTenant[Uploads]) -> APIRouter:
    """Return the routes to the uploads of the caller's tenant."""
    router = APIRouter(prefix="/v1/files", tags=["files"])
    codes = (
        ErrorCode.INVALID_DATASET,
        ErrorCode.CONFLICT,
        ErrorCode.NO_ROOM,
        ErrorCode.QUOTA_EXCEEDED,
        ErrorCode.UNAVAILABLE,
    )

    @router.get("/{sha256}", responses=dict(responses(ErrorCode.INVALID_DATASET)))
    async def state(sha256: Sha256) -> FileState:
        """Report how much of a file has been received, in bytes."""
        return await asyncio.to_thread(uploads.own.state, FileDigest(sha256, 0))

    @router.put(
        "/{sha256}",
        responses=dict(responses(*codes)),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def receive(
        sha256: Sha256,
        request: Request,
        content_range: Annotated[
            str, Header(description="bytes FIRST-LAST/SIZE, for the rest of a file")
        ] = "",
    ) -> Upload:
        """Receive a file, or the rest of an interrupted upload. Configs refer to it by `name`."""
        offset, size = _place(content_range, request.headers.get("content-length"))
        sender = current_caller().name
        await uploads.own.receive(FileDigest(sha256, size), offset, request.stream(), sender)
        return Upload(sha256=sha256, size=size, name=str(UploadName(sha256, "NAME")))

    return router


def _place(content_range: str, content_length: str | None) -> tuple[int, int]:
    """Return the position of a request's data in the file, and the file's size."""
    match = _RANGE.fullmatch(content_range)
    if match is not None:
        return int(match[1]), int(match[3])
    if content_range or content_length is None:
        sent = f"the range {content_range!r}" if content_range else "no length"
        raise MistifyError(
            ErrorCode.INVALID_DATASET,
            f"got {sent}; expected `Content-Length`, or `Content-Range: bytes FIRST-LAST/SIZE`; send one",
        )
    return 0, int(content_length)
