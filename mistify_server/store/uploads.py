"""Uploaded files, stored once per content for as long as they are in use.

In the directory of uploads, `files/` holds complete files by SHA-256 and `arriving/` incomplete ones.
`named/DIGEST/NAME` is an upload under its name in configs: a link to its file, or a directory of such links.
`senders/NAME/DIGEST` says who sent it. Each tenant has a directory of its own (`upload_directories`).
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import IO, Final

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files.writing import sync_file, sync_path
from mistify.parsing.quantities import format_bytes
from mistify.uploads import FileDigest, UploadName
from mistify_server.identity.quotas import too_large_uploads
from mistify_server.store.artifacts import sha256_of, writing
from mistify_server.store.incomplete_files import check_offset, is_locked_at, received_alone, size_of
from mistify_server.store.upload_names import UploadNames
from mistify_server.store.upload_senders import UploadSenders

#: Seconds without access after which uploads are removed if no job refers to them.
KEPT_SECONDS: Final = 86_400.0

#: Number of cached integrity checks.
_REMEMBERED: Final = 4_096

#: Directories of uploads: of complete files, of their names in configs, and of those who sent them.
FILES: Final = "files"
NAMED: Final = "named"
SENDERS: Final = "senders"


@dataclass(frozen=True)
class FileState:
    """The number of bytes received, and whether the file is complete and verified."""

    complete: bool
    arrived: int


class Uploads:
    """The uploads of a tenant in one directory. Several servers can share it; each counts what it received.

    Args:
        directory: The directory; created if it does not exist.
        most_bytes: Limit on the total size of all files, including those of other tenants.
        referenced: Returns the SHA-256 digests of files that jobs refer to.
        now: Returns seconds since 1970.
        most_sent: Returns the limit on the total size of the files of a sender, in bytes; None for no limit.
        share: Makes an upload readable on the machines of workers, given the path of each file by its digest.
        kept_by_all: Returns the bytes of the files of all tenants; None for a single tenant.
    """

    def __init__(
        self,
        directory: Path,
        most_bytes: float,
        referenced: Callable[[], Collection[str]],
        now: Callable[[], float] = time.time,
        *,
        most_sent: Callable[[str], int | None] = lambda _: None,
        share: Callable[[UploadName, Callable[[str], Path]], None] = lambda *_: None,
        kept_by_all: Callable[[], int] | None = None,
    ) -> None:
        self._directory = directory
        self._files = directory / FILES
        self._arriving = directory / "arriving"
        self._names = UploadNames(directory / NAMED, self._arriving, self._place)
        self._most_bytes = most_bytes
        self._referenced = referenced
        self._now = now
        self._most_sent = most_sent
        self._share = share
        self._kept_by_all = kept_by_all or (lambda: self.kept)
        self._senders = UploadSenders(directory / SENDERS)
        #: Bytes received since the server started.
        self.received = 0
        self._bytes = 0
        self._counting = Lock()
        paths = list(self._all_files())
        self._senders.forget_others({path.name for path in paths})
        for path in paths:
            self._count(path.name, path.stat().st_size)
        self._busy: set[str] = set()

    @property
    def kept(self) -> int:
        """Return the total size of all files in bytes; files being uploaded count with their full size."""
        return self._bytes

    def kept_for(self, sender: str) -> int:
        """Return the total size of the files that a caller sent, in bytes, as in `kept`."""
        return self._senders.sent_by(sender)

    def check_room(self, files: Iterable[FileDigest], sender: str) -> None:
        """Raise an error if a caller's limit does not allow for all of these files, before any is sent.

        Raises:
            MistifyError: QUOTA_EXCEEDED.
        """
        most = self._most_sent(sender)
        if most is None:
            return
        missing = {file.sha256: file for file in files if not self._is_whole(file.sha256)}
        new = sum(self._new_bytes(file, sender) for file in missing.values())
        if new and self.kept_for(sender) + new > most:
            self.collect()
        if new and self.kept_for(sender) + new > most:
            raise too_large_uploads(sender, self.kept_for(sender), new, most)

    def state(self, file: FileDigest) -> FileState:
        """Return how much of a file has been received; a complete one is kept for another day.

        A file that has since been damaged counts as missing.
        """
        if self._is_whole(file.sha256):
            self._touch(self._place(file.sha256))
            return FileState(True, file.size)
        part = self._part(file.sha256)
        return FileState(False, part.stat().st_size if part.is_file() else 0)

    async def receive(self, file: FileDigest, offset: int, chunks: AsyncIterator[bytes], sender: str) -> None:
        """Receive a file from an offset; received bytes are kept even if the upload is interrupted.

        Args:
            file: Size and digest of the announced content.
            offset: Position of the first byte in the chunks; at most the number of bytes received so far.
            sender: The name of the caller; the file counts as theirs, unless it is already complete.

        Raises:
            MistifyError: CONFLICT, the offset leaves a gap; NO_ROOM, the file does not fit; QUOTA_EXCEEDED,
                it exceeds the caller's limit; INVALID_DATASET, its content does not match the announced
                digest; UNAVAILABLE, another caller is uploading it, or the disk is full.
        """
        if await asyncio.to_thread(self._is_whole, file.sha256):
            return
        with writing(self._directory), self._alone(file) as part:
            if await asyncio.to_thread(self._is_whole, file.sha256):
                return  # it has arrived at another server meanwhile
            check_offset(file, offset, size_of(part))
            most = await asyncio.to_thread(self._most_sent, sender)
            if self._refusal(file, sender, most):
                await asyncio.to_thread(self.collect)
            with self._reserved(file, sender, most):
                self._touch(part)  # an upload in progress counts as access
                await _uninterrupted(os.truncate, part, offset)
                with part.open("ab") as target:
                    await self._append(file, target, chunks)
            await _uninterrupted(self._accept, file, part)

    def find(self, upload: UploadName) -> Path:
        """Return the path of an upload under its name in configs.

        Raises:
            InvalidValue: The upload is missing or incomplete.
            MistifyError: INVALID_DATASET, the listing of a directory is invalid; UNAVAILABLE, the disk is
                full, or the bucket for workers on other machines cannot be used.
        """
        with writing(self._directory), self._names.locked():
            path = self._names.path_of(upload)
            self._touch(path.parent)
        self._share(upload, self._place)
        return path

    def collect(self) -> int:
        """Remove uploads without references from jobs or access within a day; return the bytes freed.

        Raises:
            MistifyError: The store cannot be read to find the files that jobs refer to.
            OSError: A file cannot be removed.
        """
        referenced = self._referenced()
        with self._names.locked():
            self._names.remove_except(referenced, self._is_old)
            return sum(map(self._remove_unneeded, self._all_files()))

    def _place(self, digest: str) -> Path:
        return place_of(self._directory, digest)

    def _is_whole(self, digest: str) -> bool:
        place = self._place(digest)
        try:
            status = place.stat()
        except FileNotFoundError:
            return False
        return _has_content(place, digest, status.st_ino, status.st_size, status.st_mtime_ns)

    def _part(self, digest: str) -> Path:
        return self._arriving / digest

    @contextmanager
    def _alone(self, file: FileDigest) -> Iterator[Path]:
        """Yield the incomplete file, which nobody else receives meanwhile, at this or at another server."""
        part = self._part(file.sha256)
        self._arriving.mkdir(parents=True, exist_ok=True)
        with received_alone(part):
            self._busy.add(file.sha256)
            try:
                yield part
            finally:
                self._busy.remove(file.sha256)

    def _new_bytes(self, file: FileDigest, sender: str) -> int:
        """Return the bytes by which an incomplete file would raise those that are kept for a sender."""
        own = self._senders.sender_of(file.sha256) == sender
        return file.size - (size_of(self._part(file.sha256)) if own else 0)

    def _refusal(self, file: FileDigest, sender: str, most_sent: int | None) -> MistifyError | None:
        """Return why an incomplete file cannot be received; None if it can."""
        room = self._most_bytes - self._kept_by_all() + size_of(self._part(file.sha256))
        if room < file.size:
            most, free = format_bytes(self._most_bytes, 3), format_bytes(max(room, 0), 3)
            return MistifyError(
                ErrorCode.NO_ROOM,
                f"got a file of {format_bytes(file.size, 3)}; expected at most {free}: uploads may "
                f"take {most} on this server; remove jobs whose models and data are no longer needed, "
                "or raise its --max-uploads",
            )
        kept, new = self.kept_for(sender), self._new_bytes(file, sender)
        if most_sent is not None and kept + new > most_sent:
            return too_large_uploads(sender, kept, new, most_sent)
        return None

    @contextmanager
    def _reserved(self, file: FileDigest, sender: str, most_sent: int | None) -> Iterator[None]:
        """Count a file with its full size within the block, and afterwards only its received bytes."""
        part = self._part(file.sha256)
        with self._counting:
            if refusal := self._refusal(file, sender, most_sent):
                raise refusal
            damaged, arrived = size_of(self._place(file.sha256)), size_of(part)
            self._senders.assign(file.sha256, sender, damaged + arrived)
            self._add(file.sha256, file.size - arrived)
        try:
            yield
        finally:
            self._count(file.sha256, size_of(part) - file.size)

    def _count(self, digest: str, change: int) -> None:
        with self._counting:
            self._add(digest, change)

    def _add(self, digest: str, change: int) -> None:
        """Count more or fewer bytes of a file, for a caller that holds the lock."""
        self._bytes += change
        self._senders.count(digest, change)

    def _remove_unneeded(self, path: Path) -> int:
        """Remove a file unless it is needed, or arrives at another server; return the bytes freed."""
        with suppress(FileNotFoundError), path.open("rb") as held:
            if is_locked_at(held, path) and self._is_unneeded(path):
                return self._remove(path)
        return 0

    def _remove(self, path: Path) -> int:
        """Remove a file, and return its size in bytes."""
        size = path.stat().st_size
        path.unlink()
        with self._counting:
            self._add(path.name, -size)
            if not (self._place(path.name).exists() or self._part(path.name).exists()):
                self._senders.forget(path.name)
        return size

    async def _append(self, file: FileDigest, target: IO[bytes], chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            if target.tell() + len(chunk) > file.size:
                raise _unlike(file, f"more than {file.size:,} bytes")
            target.write(chunk)
            self.received += len(chunk)
        await _uninterrupted(sync_file, target)

    def _accept(self, file: FileDigest, part: Path) -> None:
        """Verify a completely received file, and move it to its place."""
        if part.stat().st_size < file.size:
            raise _unlike(file, f"{part.stat().st_size:,} bytes")
        digest = sha256_of(part)
        if digest != file.sha256:
            self._remove(part)
            raise _unlike(file, f"the SHA-256 {digest}")
        place = self._place(file.sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        self._touch(part)
        if place.is_file():  # damaged: rewrite it in place, because its names are links to it
            shutil.copyfile(part, place)
            self._remove(part)
        else:
            part.replace(place)
        sync_path(place.parent)

    def _all_files(self) -> Iterator[Path]:
        yield from uploaded_files(self._directory)
        yield from self._arriving.glob("*")

    def _is_unneeded(self, path: Path) -> bool:
        return path.name not in self._busy and path.stat().st_nlink == 1 and self._is_old(path)

    def _is_old(self, path: Path) -> bool:
        return self._now() - path.stat().st_atime > KEPT_SECONDS

    def _touch(self, path: Path) -> None:
        """Keep a file or directory for another day; its content does not change."""
        os.utime(path, ns=(int(self._now() * 1e9), path.stat().st_mtime_ns))


def place_of(directory: Path, digest: str) -> Path:
    """Return the path that a complete file with this SHA-256 (hex) has in a directory of uploads."""
    return directory / FILES / digest[:2] / digest


def uploaded_files(directory: Path) -> Iterator[Path]:
    """Yield the complete files in a directory of uploads, each named after its SHA-256 (hex)."""
    yield from (directory / FILES).glob("??/*")


async def _uninterrupted(function: Callable[..., object], *args: object) -> None:
    """Call a function on a thread, and wait for its end even if the caller is cancelled."""
    running = asyncio.create_task(asyncio.to_thread(function, *args))
    try:
        await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


@lru_cache(maxsize=_REMEMBERED)
def _has_content(path: Path, digest: str, *_stamp: int) -> bool:
    """Check whether a file matches a digest; it is read again only if its stamp has changed."""
    return sha256_of(path) == digest


def _unlike(file: FileDigest, content: str) -> MistifyError:
    expected = f"{file.size:,} bytes with the SHA-256 {file.sha256}, as announced"
    problem = Problem("upload", content, expected, "send it again")
    return MistifyError(ErrorCode.INVALID_DATASET, "the file did not arrive as announced", [problem])
