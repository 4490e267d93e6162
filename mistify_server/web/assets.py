"""Static files and the plotting library, compressed once."""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import Final

import brotli

from mistify.errors import ErrorCode, MistifyError

#: Name of the plotting library.
PLOTLY: Final = "plotly.js"

_STATIC: Final = Path(__file__).parent / "static"

#: The pages' own files.
_NAMES: Final = frozenset(path.name for path in _STATIC.iterdir())

#: Quality of Brotli: the plotting library takes 0.4 s and 1.23 MB; the best, 11, takes 7 s and 1.11 MB.
_QUALITY: Final = 9


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
