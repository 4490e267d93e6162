"""Routes for packages: complete files, ranges, and archives."""

import asyncio
import base64
import hashlib
import logging
import os
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import FileResponse, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from mistify.ed25519 import PublicKey
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import PackageFile
from mistify.package.signature import KeyRotation
from mistify_server.identity.in_progress import InProgress
from mistify_server.jobs.package_files import PackageFiles, damaged
from mistify_server.jobs.service import PortingService
from mistify_server.jobs.store_writer import completed
from mistify_server.web.problems import responses

_CHUNK: Final = 1 << 20

#: Errors of requests for files.
_OF_FILES: Final = (
    ErrorCode.NOT_FOUND,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.CORRUPT_PACKAGE,
    ErrorCode.QUOTA_EXCEEDED,
)

#: Errors of requests for archives.
_OF_ARCHIVES: Final = (*_OF_FILES, ErrorCode.UNAVAILABLE)

_log = logging.getLogger(__name__)


class SigningKeysModel(BaseModel):
    """The keys that sign packages: the current one, and those that it has followed since the first one."""

    current: PublicKey
    first: PublicKey
    rotations: tuple[KeyRotation, ...]


class _PackageFileResponse(FileResponse):
    """A response with a file of a package, read in large pieces: each of them takes a thread.

    A file that changes after it was checked is not sent to its end, so that no client takes it for complete.
    """

    chunk_size = _CHUNK

    def __init__(
        self, path: Path, status: os.stat_result, goal_id: str, file: PackageFile, downloads: InProgress
    ) -> None:
        encoded = base64.b64encode(bytes.fromhex(file.sha256)).decode()
        super().__init__(
            path,
            media_type="application/octet-stream",
            filename=file.name,
            headers={"etag": f'"{file.sha256}"', "repr-digest": f"sha-256=:{encoded}:"},
            stat_result=status,
        )
        self._sha256 = file.sha256
        self._damage = damaged(goal_id, file)
        self._downloads = downloads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_body = scope["method"] == "GET"
        with self._downloads.one_more():
            await super().__call__(scope, receive, self._checked(send) if has_body else send)

    def _checked(self, send: Send) -> Send:
        """Return a function that sends a whole file, without its last piece if it has another content."""
        digest, is_whole = hashlib.sha256(), False
        last: Message | None = None

        async def checked(message: Message) -> None:
            nonlocal is_whole, last
            if message["type"] == "http.response.start":
                is_whole = message["status"] == HTTPStatus.OK
            if message["type"] != "http.response.body" or not is_whole:
                await send(message)
                return
            if last is not None:
                await send(last)
            await asyncio.to_thread(digest.update, message["body"])
            last = message
            if not message["more_body"]:
                if digest.hexdigest() == self._sha256:
                    await send(message)
                else:
                    _log.error("a download was broken off: %s", self._damage)

        return checked


class _ArchiveResponse(StreamingResponse):
    """A response with a complete archive, which is closed even if sending fails.

    Args:
        archive: An open file, at any position.
        counted: The count of archives in progress. It ends before the last bytes are sent: a caller that has
            them may ask for the next archive at once.
    """

    def __init__(self, archive: IO[bytes], name: str, counted: ExitStack) -> None:
        self._size = archive.seek(0, os.SEEK_END)
        archive.seek(0)
        headers = {"content-length": str(self._size), "content-disposition": f'attachment; filename="{name}"'}
        super().__init__(
            iter(partial(archive.read, _CHUNK), b""), media_type="application/zip", headers=headers
        )
        self._archive = archive
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = self._size

        async def sent(message: Message) -> None:
            nonlocal left
            left -= len(message.get("body", b""))
            if not left:
                self._counted.close()
            await send(message)

        with self._archive, self._counted:
            await super().__call__(scope, receive, sent)


async def _archive_response(
    stored: PackageFiles, job_id: str, goal_ids: Sequence[str], name: str
) -> _ArchiveResponse:
    """Return an archive of the packages of goals, which counts as one in progress until it is sent.

    Raises:
        MistifyError: QUOTA_EXCEEDED, the caller has too many in progress; or as `_archive`.
    """
    with ExitStack() as counted:
        counted.enter_context(stored.archives.one_more())
        archive = await completed(asyncio.to_thread(_archive, stored, job_id, goal_ids))
        return _ArchiveResponse(archive, name, counted.pop_all())


def package_routes(service: PortingService, stored: PackageFiles) -> APIRouter:
    """Return the routes to stored packages, and to the service that knows the goals of a job."""
    router = APIRouter(prefix="/v1", tags=["packages"])

    @router.get(
        "/jobs/{job_id}/goals/{goal_id}/files/{name}",
        response_class=FileResponse,
        responses={
            **responses(*_OF_FILES),
            200: {"content": {"application/octet-stream": {}}},
        },
    )
    async def file(job_id: str, goal_id: str, name: str) -> FileResponse:
        """Send a file of a package or a range of it, with its digest in `Repr-Digest`."""
        packaged, path = await asyncio.to_thread(stored.file, job_id, goal_id, name)
        status = await asyncio.to_thread(_status, path)
        if status is None or status.st_size != packaged.size:
            raise damaged(goal_id, packaged)
        return _PackageFileResponse(path, status, goal_id, packaged, stored.downloads)

    @router.get(
        "/jobs/{job_id}/goals/{goal_id}/package.zip",
        response_class=StreamingResponse,
        responses={
            **responses(*_OF_ARCHIVES),
            200: {"content": {"application/zip": {}}},
        },
    )
    async def package(job_id: str, goal_id: str) -> StreamingResponse:
        """Send a goal's package as a zip archive."""
        return await _archive_response(stored, job_id, [goal_id], f"{goal_id}.zip")

    @router.get(
        "/jobs/{job_id}/packages.zip",
        response_class=StreamingResponse,
        responses={
            **responses(*_OF_ARCHIVES),
            200: {"content": {"application/zip": {}}},
        },
    )
    async def packages(job_id: str) -> StreamingResponse:
        """Send all packages that a job has as a zip archive, with a directory for each goal."""
        goals = (await service.part(job_id)).job.goals
        made = [goal.id for goal in goals if goal.files]
        if not made:
            raise MistifyError(ErrorCode.NOT_FOUND, f"the job {job_id} has no package (yet)")
        return await _archive_response(stored, job_id, made, f"{job_id}.zip")

    @router.get("/signing-keys", responses=dict(responses(ErrorCode.UNAVAILABLE)))
    async def signing_keys() -> SigningKeysModel:
        """Return the public keys that sign packages; each one is signed by the one before."""
        keys = await asyncio.to_thread(stored.signing_keys)
        return SigningKeysModel(current=keys.current, first=keys.first, rotations=keys.rotations)

    return router


def _archive(stored: PackageFiles, job_id: str, goal_ids: Sequence[str]) -> IO[bytes]:
    """Return an open archive of the packages of goals, in an unnamed file that disappears when closed.

    Raises:
        MistifyError: NOT_FOUND, there is no such goal or it has no package; CORRUPT_PACKAGE, a file is
            damaged, or has changed meanwhile; UNAVAILABLE, the store cannot be read, or there is no room for
            the archive; STORE_REFUSED, its bucket refuses the key.
    """
    files = {goal_id: stored.files(job_id, goal_id) for goal_id in goal_ids}
    try:
        with ExitStack() as opened:
            archive = opened.enter_context(TemporaryFile())
            with zipfile.ZipFile(archive, "w") as packed:
                for goal_id, packaged in files.items():
                    for file, path in packaged:
                        if _pack(packed, f"{goal_id}/{file.name}", path) != file.sha256:
                            raise damaged(goal_id, file)
            opened.pop_all()
    except OSError as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"the server cannot make the archive ({error.strerror}); free space for its temporary files, "
            "or download single files",
        ) from error
    return archive


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file; None if it was removed meanwhile."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _pack(archive: zipfile.ZipFile, name: str, path: Path) -> str | None:
    """Add a file to an archive; return the SHA-256 (hex) of its content, None if it was removed meanwhile."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as source, archive.open(zipfile.ZipInfo.from_file(path, name), "w") as target:
            while piece := source.read(_CHUNK):
                digest.update(piece)
                target.write(piece)
    except FileNotFoundError:
        return None
    return digest.hexdigest()
