"""Weights on their way in, and the files that they become."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.tuning import Publication
from mistify_server.store.artifacts import Artifacts
from mistify_server.store.tuning import TuningStore

_SUFFIX: Final = ".weights"

#: How long an upload may take, in seconds.
UPLOAD_SECONDS: Final = 1800.0


def artifact_of(digest: str) -> str:
    """The artifact of weights with this SHA-256 (hex)."""
    return digest + _SUFFIX


@asynccontextmanager
async def received(
    publication: Publication, chunks: AsyncIterator[bytes], directory: Path
) -> AsyncIterator[Path]:
    """The file that arrives in pieces, while the context is open; it is as long as announced, and no longer.

    Args:
        publication: announces the weights.
        chunks: the pieces.
        directory: for the file.

    Raises:
        MistifyError: INVALID_PUBLICATION, more or less arrives, or something else; UNAVAILABLE, it takes too
            long.
    """
    with NamedTemporaryFile(suffix=_SUFFIX, dir=directory) as file:
        digest, size = sha256(), 0
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                async for chunk in chunks:
                    size += len(chunk)
                    if size > publication.size:
                        raise _wrong(f"more than {publication.size:,} bytes", f"{publication.size:,}")
                    digest.update(chunk)
                    file.write(chunk)
        except TimeoutError as error:
            message = f"the weights did not arrive within {UPLOAD_SECONDS:.0f} seconds; try again"
            raise MistifyError(ErrorCode.UNAVAILABLE, message) from error
        if size < publication.size:
            raise _wrong(f"{size:,} bytes", f"{publication.size:,}")
        if digest.hexdigest() != publication.sha256:
            raise _wrong(f"SHA-256 {digest.hexdigest()}", publication.sha256)
        file.flush()
        yield Path(file.name)


def _wrong(given: str, expected: str) -> MistifyError:
    problem = Problem("weights", given, f"{expected}, as announced", "send them again")
    return MistifyError(ErrorCode.INVALID_PUBLICATION, "the weights did not arrive as announced", [problem])


class WeightFiles:
    """The files of published weights: they stay as long as a publication refers to them.

    Members may publish equal weights, which are one file. What is being published counts as referred to.
    """

    def __init__(self, files: Artifacts, tuning: TuningStore) -> None:
        self._files = files
        self._tuning = tuning
        self._arriving: Counter[str] = Counter()

    @asynccontextmanager
    async def kept(self, path: Path, digest: str) -> AsyncIterator[None]:
        """Keep a file; by the end of the context a publication refers to it, or it goes again."""
        self._arriving[digest] += 1
        try:
            await asyncio.to_thread(self._files.put, path)
            yield
        finally:
            self._arriving -= Counter([digest])
            self.collect(digest)

    def incoming(self) -> Path:
        """A directory for what arrives."""
        return self._files.incoming()

    def path(self, digest: str) -> Path:
        """Where weights lie.

        Raises:
            MistifyError: NOT_FOUND, they were removed.
        """
        return self._files.path(artifact_of(digest))

    def collect(self, digest: str) -> None:
        """Remove weights that no publication refers to."""
        if not self._arriving[digest] and not self._tuning.has_weights(digest):
            self._files.remove(artifact_of(digest))

    def sweep(self) -> None:
        """Remove all weights that no publication refers to, such as those that a crash has left behind."""
        published = {artifact_of(digest) for digest in self._tuning.weights()}
        for name in self._files.names():
            if name not in published:
                self._files.remove(name)
