"""Routes to the wheel of the client, as an index from which pip installs (PEP 503)."""

import asyncio
from typing import Final
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from mistify.errors import ErrorCode, MistifyError
from mistify_server.web.client_wheel import DISTRIBUTION, Wheel, client_wheel

#: Path of the index; pip has no token of the server, and the wheel has no secrets.
INDEX: Final = "/simple"


def wheel_path(wheel: Wheel) -> str:
    """Return the path of a wheel on the server."""
    return f"{INDEX}/{DISTRIBUTION}/{quote(wheel.name)}"


def client_routes() -> APIRouter:
    """Return the routes to the index and to the wheel."""
    router = APIRouter(prefix=INDEX, include_in_schema=False)

    @router.get("/")
    async def index() -> HTMLResponse:
        """List the only project."""
        return HTMLResponse(_links({f"{INDEX}/{DISTRIBUTION}/": DISTRIBUTION}))

    @router.get(f"/{DISTRIBUTION}/")
    async def project() -> HTMLResponse:
        """List the only file of the project."""
        wheel = await asyncio.to_thread(client_wheel)
        return HTMLResponse(_links({f"{wheel_path(wheel)}#sha256={wheel.sha256}": wheel.name}))

    @router.get(f"/{DISTRIBUTION}/{{name}}")
    async def file(name: str) -> Response:
        """Return the wheel."""
        wheel = await asyncio.to_thread(client_wheel)
        if name != wheel.name:
            raise MistifyError(ErrorCode.NOT_FOUND, f'there is no file "{name}"; the server has {wheel.name}')
        return Response(wheel.content, media_type="application/zip")

    return router


def _links(links: dict[str, str]) -> str:
    """Return a page of links, by address, as PEP 503 describes it."""
    listed = "\n".join(f'<a href="{address}">{name}</a>' for address, name in links.items())
    return f"<!doctype html>\n<title>Simple index</title>\n{listed}\n"
