"""Routes of packages: their files, whole or in ranges, and archives of them."""

import asyncio
import base64
import zipfile
from pathlib import Path
from tempfile import NamedTemporaryFile

from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from mistify.errors import ErrorCode
from mistify.jobs.job import PackageFile
from mistify_server.jobs.service import PortingService
from mistify_server.web.problems import responses


def package_routes(service: PortingService) -> APIRouter:
    """Return the routes over a service."""
    router = APIRouter(prefix="/v1", tags=["packages"])

    @router.get(
        "/jobs/{job_id}/goals/{goal_id}/files/{name}",
        response_class=FileResponse,
        responses={
            **responses(ErrorCode.NOT_FOUND, ErrorCode.INVALID_CONFIG),
            200: {"content": {"application/octet-stream": {}}},
        },
    )
    async def file(job_id: str, goal_id: str, name: str) -> FileResponse:
        """Send a file of a package, or a range of it; its digest is in `Repr-Digest`."""
        packaged, path = await asyncio.to_thread(service.package_file, job_id, goal_id, name)
        return FileResponse(
            path, media_type="application/octet-stream", filename=name, headers=_digest(packaged)
        )

    @router.get(
        "/jobs/{job_id}/goals/{goal_id}/package.zip",
        response_class=FileResponse,
        responses={
            **responses(ErrorCode.NOT_FOUND, ErrorCode.INVALID_CONFIG),
            200: {"content": {"application/zip": {}}},
        },
    )
    async def package(job_id: str, goal_id: str) -> FileResponse:
        """Send a goal's package as one file."""
        archive = await asyncio.to_thread(_archive, service, job_id, goal_id)
        clean_up = BackgroundTask(archive.unlink)
        return FileResponse(
            archive, filename=f"{goal_id}.zip", media_type="application/zip", background=clean_up
        )

    return router


def _digest(file: PackageFile) -> dict[str, str]:
    encoded = base64.b64encode(bytes.fromhex(file.sha256)).decode()
    return {"etag": f'"{file.sha256}"', "repr-digest": f"sha-256=:{encoded}:"}


def _archive(service: PortingService, job_id: str, goal_id: str) -> Path:
    """Write a goal's package into a temporary archive, and return its path."""
    files = service.package_files(job_id, goal_id)
    with NamedTemporaryFile(suffix=".zip", delete=False) as archive, zipfile.ZipFile(archive, "w") as packed:
        for file, path in files:
            packed.write(path, f"{goal_id}/{file.name}")
    return Path(archive.name)
