"""Uploads of weights, and the files made of them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.peers.membership import Publication
from mistify_server.store.artifacts import Artifacts, digest_of, writing
from mistify_server.store.tuning import TuningStore

_SUFFIX: Final = ".weights"

#: How long an upload may take, in seconds.
UPLOAD_SECONDS: Final = 1800.0


def artifact_of(digest: str) -> str:
    """Return the artifact of weights with this SHA-256 (hex)."""
    return digest + _SUFFIX


@asynccontextmanager
async def received(
    publication: Publication, chunks: AsyncIterator[bytes], directory: Path
) -> AsyncIterator[Path]:
    """Receive a file in pieces, and yield its path in the block; it is exactly as long as announced.

    Args:
        publication: Announces the weights.
        chunks: The weights in pieces.
        directory: The file's directory.

    Raises:
        MistifyError: INVALID_PUBLICATION, more or less arrives, or something else; UNAVAILABLE, it takes too
            long, or the disk is full.
    """
    with ExitStack() as opened:
        with writing(directory):
            file = opened.enter_context(NamedTemporaryFile(suffix=_SUFFIX, dir=directory, buffering=0))
        digest, size = sha256(), 0
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                async for chunk in chunks:
                    size += len(chunk)
                    if size > publication.size:
                        raise _wrong(f"more than {publication.size:,} bytes", f"{publication.size:,}")
                    digest.update(chunk)
                    _write(chunk, file, directory)
        except TimeoutError as error:
            message = f"the weights did not arrive within {UPLOAD_SECONDS:.0f} seconds; try again"
            raise MistifyError(ErrorCode.UNAVAILABLE, message) from error
        if size < publication.size:
            raise _wrong(f"{size:,} bytes", f"{publication.size:,}")
        if digest.hexdigest() != publication.sha256:
            raise _wrong(f"SHA-256 {digest.hexdigest()}", publication.sha256)
        yield Path(file.name)


def _write(chunk: bytes, file: IO[bytes], directory: Path) -> None:
    rest = memoryview(chunk)
    with writing(directory):
        while rest:
            rest = rest[file.write(rest) :]  # a disk takes the first part of what fills it


def _wrong(given: str, expected: str) -> MistifyError:
    problem = Problem("weights", given, f"{expected}, as announced", "send them again")
    return MistifyError(ErrorCode.INVALID_PUBLICATION, "the weights did not arrive as announced", [problem])


class WeightFiles:
    """The files of published weights: they stay as long as a publication refers to them.

    Members may publish equal weights, which are one file. Weights that are being published count as referred
    to.
    """

    def __init__(self, files: Artifacts, tuning: TuningStore) -> None:
        self._files = files
        self._tuning = tuning
        self._arriving: Counter[str] = Counter()

    @asynccontextmanager
    async def kept(self, path: Path, digest: str) -> AsyncIterator[None]:
        """Keep a file; unless a publication refers to it by the end of the context, it is removed again."""
        self._arriving[digest] += 1
        putting = asyncio.create_task(asyncio.to_thread(self._files.put, path))
        try:
            await asyncio.shield(putting)
            yield
        finally:
            try:
                await asyncio.wait([putting])  # the file comes, though the caller has gone away
            finally:
                self._arriving -= Counter([digest])
                self.collect(digest)

    def incoming(self) -> Path:
        """Return a directory for files that are arriving.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        return self._files.incoming()

    def path(self, digest: str) -> Path:
        """Return the path of weights.

        Raises:
            MistifyError: NOT_FOUND, they were removed.
        """
        return self._files.path(artifact_of(digest))

    def collect(self, digest: str) -> None:
        """Remove weights that no publication refers to."""
        if not self._arriving[digest] and not self._tuning.has_weights(digest):
            self._files.remove(artifact_of(digest))

    def unpublished(self) -> list[str]:
        """Return the SHA-256 of weights that no publication refers to, including arriving ones."""
        digests = map(digest_of, self._files.names())
        published = self._tuning.weights()
        return [digest for digest in digests if digest not in published]
