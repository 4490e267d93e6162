"""Routes to the static files, which browsers cache until their content changes."""

import re
from typing import Final

from fastapi import APIRouter, Request, Response

from mistify_server.web.assets import Asset, asset_of

#: For addresses with the digest of the content, which never changes.
_FOREVER: Final = "public, max-age=31536000, immutable"

#: The weight of an encoding that a client does not accept.
_REFUSED: Final = re.compile(r"q=0(\.0{0,3})?")


def asset_routes() -> APIRouter:
    """Return the routes."""
    router = APIRouter(include_in_schema=False)

    @router.get("/static/{name}", response_class=Response)
    def static_file(request: Request, name: str) -> Response:
        return _response(request, asset_of(name))

    return router


def _response(request: Request, asset: Asset) -> Response:
    known = request.query_params.get("v") == asset.digest
    tag = f'W/"{asset.digest}"'  # weak, because it is the same for all encodings
    headers = {
        "cache-control": _FOREVER if known else "no-cache",
        "etag": tag,
        "vary": "accept-encoding",
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    weighted = (each.partition(";") for each in request.headers.get("accept-encoding", "").split(","))
    accepted = {
        encoding.strip() for encoding, _, weight in weighted if not _REFUSED.fullmatch(weight.strip())
    }
    for encoding, content in asset.compressed.items():
        if encoding in accepted:
            headers["content-encoding"] = encoding
            return Response(content, media_type=asset.media_type, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)
