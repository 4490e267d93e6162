"""Static files and the plotting library: compressed once, cached until their content changes."""

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import Final

import brotli
from fastapi import APIRouter, Request, Response

from mistify.errors import ErrorCode, MistifyError

#: Name of the plotting library.
PLOTLY: Final = "plotly.js"

_STATIC: Final = Path(__file__).parent / "static"

#: The pages' own files.
_NAMES: Final = frozenset(path.name for path in _STATIC.iterdir())

#: For addresses with the digest of the content, which never changes.
_FOREVER: Final = "public, max-age=31536000, immutable"

#: Quality of Brotli: the plotting library takes 0.4 s and 1.23 MB; the best, 11, takes 7 s and 1.11 MB.
_QUALITY: Final = 9

#: The weight of an encoding that a client does not accept.
_REFUSED: Final = re.compile(r"q=0(\.0{0,3})?")


@dataclass(frozen=True)
class Asset:
    """A static file.

    Attributes:
        compressed: The compressed content by encoding, the smallest one first.
        digest: Part of the SHA-256 digest of the content, in hexadecimal.
    """

    content: bytes
    compressed: Mapping[str, bytes]
    media_type: str
    digest: str


@cache
def asset_of(name: str) -> Asset:
    """Return a static file.

    Raises:
        MistifyError: NOT_FOUND, there is none with this name, or the plotting library is not installed.
    """
    if name != PLOTLY and name not in _NAMES:
        raise MistifyError(ErrorCode.NOT_FOUND, f'there is no file "{name}"')
    content = (plotly_script() if name == PLOTLY else _STATIC / name).read_bytes()
    return Asset(
        content,
        {"br": brotli.compress(content, quality=_QUALITY), "gzip": gzip.compress(content, mtime=0)},
        guess_type(name)[0] or "application/octet-stream",
        sha256(content).hexdigest()[:16],
    )


def asset_url(name: str) -> str:
    """Return the address of a static file; it changes with the content."""
    return f"/static/{name}?v={asset_of(name).digest}"


def plotly_script() -> Path:
    """Return the path of the plotting library, the only bundle in its Python package."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise MistifyError(ErrorCode.NOT_FOUND, "plotly is not installed, so there are no plots")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


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
