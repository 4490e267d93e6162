"""Files that callers have sent: kept by their content, once, for as long as something refers to them.

Below the directory of uploads, `files/` has the files by their SHA-256, `arriving/` incomplete files, and
`named/DIGEST/NAME` is an upload under its name in configs: a link to its file, or a directory of such links.
"""

import asyncio
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path
from threading import Lock
from typing import IO, Final

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files.writing import sync_file, sync_path
from mistify.parsing.quantities import format_bytes
from mistify.parsing.validation import InvalidValue
from mistify.uploads import FileDigest, UploadName, read_listing
from mistify_server.store.artifacts import writing

#: What nobody has asked for during so many seconds goes when no job refers to it.
KEPT_SECONDS: Final = 86_400.0

#: Files of which it is remembered whether they are whole.
_REMEMBERED: Final = 4_096


@dataclass(frozen=True)
class FileState:
    """How much of a file has arrived, in bytes, and whether it is whole and checked."""

    complete: bool
    arrived: int


class Uploads:
    """The uploads below one directory, which one server uses.

    Args:
        directory: Made where there is none.
        most_bytes: Limit on all files together.
        referenced: Returns the SHA-256 of files that jobs refer to.
        now: Returns seconds since 1970.
    """

    def __init__(
        self,
        directory: Path,
        most_bytes: float,
        referenced: Callable[[], Collection[str]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._files = directory / "files"
        self._arriving = directory / "arriving"
        self._named = directory / "named"
        self._most_bytes = most_bytes
        self._referenced = referenced
        self._now = now
        #: Bytes that have come since the server was started.
        self.received = 0
        self._bytes = sum(path.stat().st_size for path in self._all_files())
        self._counting = Lock()
        self._busy: set[str] = set()
        #: Held while names are made and files removed, which can take long: never by the event loop.
        self._naming = Lock()

    @property
    def kept(self) -> int:
        """Return the bytes of all files together; one that is arriving counts as if it were whole."""
        return self._bytes

    def state(self, file: FileDigest) -> FileState:
        """Return how much of a file has arrived; a complete one is kept for another day.

        A file that the disk has damaged since then has not arrived.
        """
        if self._is_whole(file.sha256):
            self._touch(self._place(file.sha256))
            return FileState(True, file.size)
        part = self._part(file.sha256)
        return FileState(False, part.stat().st_size if part.is_file() else 0)

    async def receive(self, file: FileDigest, offset: int, chunks: AsyncIterator[bytes]) -> None:
        """Receive a file from an offset on; bytes that have arrived stay, however the upload ends.

        Args:
            file: Size and digest of the announced content.
            offset: The first byte that the chunks bring; not behind those that have arrived.

        Raises:
            MistifyError: CONFLICT, the offset leaves a gap; NO_ROOM, it does not fit; INVALID_DATASET, its
                content is another than announced; UNAVAILABLE, another caller is sending it, or the disk
                is full.
        """
        if await asyncio.to_thread(self._is_whole, file.sha256):
            return
        with self._alone(file), writing(self._directory):
            self._arriving.mkdir(parents=True, exist_ok=True)
            part = self._part(file.sha256)
            part.touch()
            self._touch(part)  # what is arriving again is not what nobody has asked for
            _check_offset(file, offset, part)
            if self._room(part) < file.size:
                await asyncio.to_thread(self.collect)
            with self._reserved(file, part):
                await _to_its_end(os.truncate, part, offset)
                with part.open("ab") as target:
                    await self._append(file, target, chunks)
            await _to_its_end(self._accept, file, part)

    def find(self, upload: UploadName) -> Path:
        """Return the path of an upload, with the name that it has in configs.

        Raises:
            InvalidValue: The upload has not arrived, or not all of it.
            MistifyError: INVALID_DATASET, a directory whose listing is none; UNAVAILABLE, the disk is full.
        """
        path = self._named / upload.sha256 / upload.name
        with self._naming, writing(self._directory):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                if upload.directory:
                    self._link_directory(upload, path)
                else:
                    self._link(str(upload), upload.sha256, path)
            self._touch(path.parent)
        return path

    def collect(self) -> int:
        """Remove uploads that no job refers to and nobody has asked for during a day; return the bytes freed.

        Raises:
            MistifyError: The store cannot be read, so that it is unknown which files jobs refer to.
            OSError: A file cannot be removed.
        """
        referenced = self._referenced()
        with self._naming:
            for directory in self._named.glob("*"):
                if directory.name not in referenced and self._is_old(directory):
                    shutil.rmtree(directory)
            return sum(self._remove(path) for path in self._all_files() if self._is_unneeded(path))

    def _place(self, digest: str) -> Path:
        return self._files / digest[:2] / digest

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
    def _alone(self, file: FileDigest) -> Iterator[None]:
        if file.sha256 in self._busy:
            raise MistifyError(
                ErrorCode.UNAVAILABLE, f"{file.sha256} is being uploaded; try again after that"
            )
        self._busy.add(file.sha256)
        try:
            yield
        finally:
            self._busy.remove(file.sha256)

    def _room(self, part: Path) -> float:
        """Return the bytes that a partly arrived file may have."""
        return self._most_bytes - self._bytes + part.stat().st_size

    @contextmanager
    def _reserved(self, file: FileDigest, part: Path) -> Iterator[None]:
        """Count a file as if all of it had arrived, and after the block only the bytes that have."""
        with self._counting:
            room = self._room(part)
            if room < file.size:
                most, free = format_bytes(self._most_bytes, 3), format_bytes(max(room, 0), 3)
                raise MistifyError(
                    ErrorCode.NO_ROOM,
                    f"got a file of {format_bytes(file.size, 3)}; expected at most {free}: uploads may "
                    f"take {most} on this server; remove jobs whose models and data are no longer needed, "
                    "or raise its --max-uploads",
                )
            self._bytes += file.size - part.stat().st_size
        try:
            yield
        finally:
            self._count(part.stat().st_size - file.size)

    def _count(self, change: int) -> None:
        with self._counting:
            self._bytes += change

    def _remove(self, path: Path) -> int:
        """Remove a file, and return its bytes."""
        size = path.stat().st_size
        path.unlink()
        self._count(-size)
        return size

    async def _append(self, file: FileDigest, target: IO[bytes], chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            if target.tell() + len(chunk) > file.size:
                raise _unlike(file, f"more than {file.size:,} bytes")
            target.write(chunk)
            self.received += len(chunk)
        await _to_its_end(sync_file, target)

    def _accept(self, file: FileDigest, part: Path) -> None:
        """Put a file that has arrived whole into its place."""
        if part.stat().st_size < file.size:
            raise _unlike(file, f"{part.stat().st_size:,} bytes")
        digest = _digest(part)
        if digest != file.sha256:
            self._remove(part)
            raise _unlike(file, f"the SHA-256 {digest}")
        place = self._place(file.sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        self._touch(part)
        if place.is_file():  # damaged: its names are links to it, and become whole with it
            shutil.copyfile(part, place)
            self._remove(part)
        else:
            part.replace(place)
        sync_path(place.parent)

    def _link(self, name: str, digest: str, path: Path) -> None:
        """Give a file a name; it shares the disk's blocks with the file, unless that has too many names."""
        place = self._place(digest)
        if not place.is_file():
            raise _missing(name)
        try:
            path.hardlink_to(place)
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            shutil.copy2(place, path)
            renewed = self._arriving / f"{digest}.renewed"
            renewed.unlink(missing_ok=True)
            renewed.hardlink_to(path)
            renewed.replace(place)  # the next names are those of the copy

    def _link_directory(self, upload: UploadName, path: Path) -> None:
        """Make a directory of links; it appears when it is whole."""
        listing = self._place(upload.sha256)
        if not listing.is_file():
            raise _missing(str(upload))
        partial = self._named / f".{upload.sha256}"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            for relative, file in read_listing(listing).items():
                target = partial / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                self._link(str(upload), file.sha256, target)
            partial.rename(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _all_files(self) -> Iterator[Path]:
        yield from self._files.glob("??/*")
        yield from self._arriving.glob("*")

    def _is_unneeded(self, path: Path) -> bool:
        return path.name not in self._busy and path.stat().st_nlink == 1 and self._is_old(path)

    def _is_old(self, path: Path) -> bool:
        return self._now() - path.stat().st_atime > KEPT_SECONDS

    def _touch(self, path: Path) -> None:
        """Keep a file or directory for another day; readers find it unchanged."""
        os.utime(path, ns=(int(self._now() * 1e9), path.stat().st_mtime_ns))


async def _to_its_end(function: Callable[..., object], *args: object) -> None:
    """Call a function on a thread; a caller that is cancelled meanwhile waits until it has ended."""
    running = asyncio.create_task(asyncio.to_thread(function, *args))
    try:
        await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


@lru_cache(maxsize=_REMEMBERED)
def _has_content(path: Path, digest: str, *_stamp: int) -> bool:
    """Check whether a file has a digest; it is read again if its stamp has changed."""
    return _digest(path) == digest


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return file_digest(content, sha256).hexdigest()


def _check_offset(file: FileDigest, offset: int, part: Path) -> None:
    arrived = part.stat().st_size
    if not 0 <= offset <= arrived:
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"got data of {file.sha256} from byte {offset:,} on; expected them from byte {arrived:,} on, "
            "because that much has arrived; ask for its state and send the rest",
        )


def _missing(name: str) -> InvalidValue:
    return InvalidValue(
        name, "an upload that the server has", "submit the config with `mistify port`, which uploads it"
    )


def _unlike(file: FileDigest, content: str) -> MistifyError:
    expected = f"{file.size:,} bytes with the SHA-256 {file.sha256}, as announced"
    problem = Problem("upload", content, expected, "send it again")
    return MistifyError(ErrorCode.INVALID_DATASET, "the file did not arrive as announced", [problem])
