"""Routes for static files and the plotting library."""

from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.responses import FileResponse

from mistify.errors import ErrorCode, MistifyError
from mistify_server.web.pages.plots import plotly_script

_STATIC: Final = Path(__file__).parent.parent / "static"

#: The pages' own files.
_ASSETS: Final = {path.name: path for path in _STATIC.iterdir()}


def asset_routes() -> APIRouter:
    """Return the routes."""
    router = APIRouter(include_in_schema=False)

    @router.get("/static/plotly.js", response_class=FileResponse)
    async def plotly() -> FileResponse:
        return FileResponse(plotly_script(), headers={"cache-control": "private, max-age=86400"})

    @router.get("/static/{name}", response_class=FileResponse)
    async def asset(name: str) -> FileResponse:
        if name not in _ASSETS:
            raise MistifyError(ErrorCode.NOT_FOUND, f'there is no file "{name}"')
        return FileResponse(_ASSETS[name], headers={"cache-control": "no-cache"})

    return router
