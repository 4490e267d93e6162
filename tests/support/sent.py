"""Files that tests upload."""

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256

from mistify.uploads import FileDigest
from mistify_server.store.uploads import Uploads

_PIECE = 100


def digest_of(content: bytes) -> FileDigest:
    """Return the digest and size that a client announces for a file."""
    return FileDigest(sha256(content).hexdigest(), len(content))


async def pieces(content: bytes, broken: bool = False) -> AsyncIterator[bytes]:
    """Yield a content in pieces; if broken, the client then ends the call."""
    for start in range(0, len(content), _PIECE):
        yield content[start : start + _PIECE]
    if broken:
        raise asyncio.CancelledError


def send(
    uploads: Uploads,
    content: bytes,
    file: FileDigest | None = None,
    offset: int = 0,
    sender: str = "ci",
) -> FileDigest:
    """Upload a content from an offset, and return what was announced: its own digest by default."""
    file = file or digest_of(content)
    asyncio.run(uploads.receive(file, offset, pieces(content[offset:]), sender))
    return file
