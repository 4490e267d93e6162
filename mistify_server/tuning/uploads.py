"""Uploads of weights, and their files."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from hashlib import sha256
from math import inf
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.parsing.quantities import format_bytes
from mistify.peers.membership import Publication
from mistify_server.jobs.store_writer import completed
from mistify_server.store.artifacts import Artifacts, digest_of, writing
from mistify_server.store.tuning import TuningStore

_SUFFIX: Final = ".weights"

#: Timeout for an upload, in seconds.
UPLOAD_SECONDS: Final = 1800.0


def artifact_of(digest: str) -> str:
    """Return the artifact name of weights with this SHA-256 (hex)."""
    return digest + _SUFFIX


@asynccontextmanager
async def received(
    publication: Publication, chunks: AsyncIterator[bytes], directory: Path
) -> AsyncIterator[Path]:
    """Receive a file in pieces, and yield its path within the block; its size is as announced.

    Args:
        publication: Announces size and digest of the weights.
        chunks: The weights in pieces.
        directory: Directory for the file.

    Raises:
        MistifyError: INVALID_PUBLICATION, the size or digest does not match; UNAVAILABLE, the upload takes
            too long, or the disk is full.
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
            rest = rest[file.write(rest) :]  # a disk that fills up may write only a part


def _wrong(value: str, expected: str) -> MistifyError:
    problem = Problem("weights", value, f"{expected}, as announced", "send them again")
    return MistifyError(ErrorCode.INVALID_PUBLICATION, "the weights did not arrive as announced", [problem])


class WeightFiles:
    """The files of published weights, kept for as long as a publication refers to them.

    Identical weights from several members share one file. Weights that are being published count as
    referenced. Only threads wait for the store.

    Args:
        most_bytes: Limit on the total size of the files.
    """

    def __init__(self, files: Artifacts, tuning: TuningStore, most_bytes: float = inf) -> None:
        self._files = files
        self._tuning = tuning
        self._most_bytes = most_bytes
        #: Sizes of the stored files by digest, and their sum with the room for those that are arriving.
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._arriving: Counter[str] = Counter()
        #: Held while weights begin to arrive, or are removed because nothing refers to them.
        self._changing = asyncio.Lock()

    @contextmanager
    def room(self, new: int) -> Iterator[None]:
        """Keep room within the block for weights that arrive.

        Args:
            new: Their size in bytes, less that of the weights that they replace.

        Raises:
            MistifyError: NO_ROOM.
        """
        if new > 0 and self._bytes + new > self._most_bytes:
            free = max(self._most_bytes - self._bytes, 0.0)
            more, most, left = (format_bytes(float(size), 3) for size in (new, self._most_bytes, free))
            raise MistifyError(
                ErrorCode.NO_ROOM,
                f"got weights that take {more} more; expected at most {left}: those of all groups may take "
                f"{most} on this server; remove groups that are no longer tuned, or raise its --max-uploads",
            )
        self._bytes += new
        try:
            yield
        finally:
            self._bytes -= new

    @asynccontextmanager
    async def kept(self, path: Path, digest: str) -> AsyncIterator[None]:
        """Store a file; it is removed at the end of the block unless a publication refers to it by then."""
        async with self._changing:
            self._arriving[digest] += 1
        size = path.stat().st_size
        putting = asyncio.create_task(asyncio.to_thread(self._files.put, path))
        try:
            await asyncio.shield(putting)
            yield
        finally:
            try:
                await asyncio.wait([putting])  # the file is stored even if the caller was cancelled
                if not putting.cancelled() and putting.exception() is None:
                    self._count(digest, size)
            finally:
                self._arriving -= Counter([digest])
                await completed(self.collect(digest))

    def incoming(self) -> Path:
        """Return a directory for incomplete files.

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

    async def collect(self, digest: str) -> None:
        """Remove weights if no publication refers to them."""
        async with self._changing:
            if not self._arriving[digest] and not await asyncio.to_thread(self._tuning.has_weights, digest):
                self._files.remove(artifact_of(digest))
                self._count(digest, 0)

    def sweep(self) -> None:
        """Remove weights left behind by a crash, and count the others, before any arrive."""
        for digest in self.unpublished():
            self._files.remove(artifact_of(digest))
        for name in self._files.names():
            self._count(digest_of(name), self._files.size(name))

    def _count(self, digest: str, size: int) -> None:
        """Note the size of a stored file; 0 if it was removed."""
        self._bytes += size - self._sizes.pop(digest, 0)
        if size:
            self._sizes[digest] = size

    def unpublished(self) -> list[str]:
        """Return the SHA-256 digests of unreferenced weights, including those being uploaded."""
        digests = map(digest_of, self._files.names())
        published = self._tuning.weights()
        return [digest for digest in digests if digest not in published]
