"""Uploads on machines that do not share the server's disk: in the bucket while jobs may use them."""

import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify.uploads import UploadName, read_listing
from mistify_server.store.artifacts import writing
from mistify_server.store.objects.bucket import CONNECTIONS, Bucket
from mistify_server.store.upload_directories import TENANTS, directory_of, tenants_with_uploads
from mistify_server.store.uploads import FILES, NAMED, place_of, uploaded_files

#: Beginnings of the keys of files, and of the listings of directories, each with a SHA-256 after it.
_FILE: Final = "uploads/files/"
_LISTING: Final = "uploads/listings/"

#: Seconds without use after which a fetched upload is removed: longer than any task.
_KEPT_SECONDS: Final = 2 * 86_400.0

_log = logging.getLogger(__name__)


class SharedUploads:
    """The uploads of a store in its bucket, and on each machine under the same paths.

    Args:
        directory: Directory of the uploads in the store, which machines without the server lack at first.
        bucket: The bucket with the store's artifacts.
    """

    def __init__(self, directory: Path, bucket: Bucket) -> None:
        self._directory = directory
        self._bucket = bucket

    def share(self, upload: UploadName, place: Callable[[str], Path]) -> None:
        """Store an upload in the bucket, unless it is there.

        Args:
            place: Returns the path of a complete file by its SHA-256 (hex).

        Raises:
            MistifyError: UNAVAILABLE, the bucket cannot be used; STORE_REFUSED, it refuses the key.
        """
        last = (_LISTING if upload.directory else _FILE) + upload.sha256
        with locked(self._directory, shared=True):  # what is found is not being removed
            if self._bucket.find(last) is not None:
                return
        if upload.directory:
            files = {file.sha256 for file in read_listing(place(upload.sha256)).values()}
            with ThreadPoolExecutor(CONNECTIONS, "uploads") as threads:
                list(threads.map(lambda digest: self._bucket.upload(_FILE + digest, place(digest)), files))
        self._bucket.upload(last, place(upload.sha256))  # it stands for all of them

    def fetch(self, path: Path) -> None:
        """Have an upload on this machine, if this is the path of one, or of a file in one.

        Raises:
            MistifyError: UNAVAILABLE, the bucket cannot be used, or the disk is full or cannot be written;
                STORE_REFUSED, the bucket refuses the key; CORRUPT_PACKAGE, the upload is not in the bucket or
                is damaged.
        """
        place = self._place_of(path)
        if place is None:
            return
        with writing(self._directory):
            if not place.exists():
                named = place.parent.parent
                named.mkdir(parents=True, exist_ok=True)
                with locked(named):  # one worker of a machine fetches it for all
                    if not place.exists():
                        self._remove_fetched()
                        self._fetch(place)
            if not self._is_of_server:
                os.utime(place.parent, ns=(time.time_ns(), place.parent.stat().st_mtime_ns))

    def remove_unused(self, referenced: Collection[str], before: float) -> None:
        """Delete old objects of uploads that the server has removed and that no job refers to.

        An upload that arrives meanwhile keeps its objects, however old they are, since `share` does not store
        them again.

        While the listing of a directory in use is damaged, its files are unknown, and all files are kept.

        Args:
            referenced: The SHA-256 digests of files that jobs refer to.
            before: Seconds since 1970 by the clock of S3; later objects are kept.

        Raises:
            MistifyError: UNAVAILABLE, the bucket cannot be used; STORE_REFUSED, it refuses the key.
            OSError: A listing cannot be written to this machine's disk.
        """
        of_tenants = (uploaded_files(directory) for directory in self._directories())
        kept = {path.name for path in chain.from_iterable(of_tenants)}.union(referenced)
        # Listings first: one without its files would be taken for a shared directory.
        listings = self._remove_others(_LISTING, kept, before)
        try:
            kept = kept.union(*map(self._files_of, listings))
        except MistifyError as error:
            if error.code is not ErrorCode.CORRUPT_PACKAGE:
                raise
            _log.warning("unused files of uploads stay in the bucket: %s", error)
            return
        self._remove_others(_FILE, kept, before)

    def _remove_others(self, start: str, kept: Collection[str], before: float) -> list[str]:
        """Delete old objects except for those with some digests; return the digests of all that remain."""
        remaining = []
        for key, stored in self._bucket.all(start).items():
            digest = key.removeprefix(start)
            if digest in kept or stored.stored >= before or not self._remove_unneeded(key, digest):
                remaining.append(digest)
        return remaining

    def _remove_unneeded(self, key: str, digest: str) -> bool:
        """Delete an object unless its upload has arrived again; return whether it was deleted."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with locked(self._directory):
            if any(place_of(directory, digest).exists() for directory in self._directories()):
                return False
            self._bucket.remove(key)
        return True

    @property
    def _is_of_server(self) -> bool:
        """Return whether this directory is the server's own, in which `Uploads` keeps and removes files."""
        return any((directory / FILES).exists() for directory in self._directories())

    def _directories(self) -> list[Path]:
        """Return the directories of the uploads of all tenants."""
        tenants = tenants_with_uploads(self._directory)
        return [directory_of(self._directory, tenant) for tenant in tenants]

    def _place_of(self, path: Path) -> Path | None:
        """Return the path of the upload that is, or has, a file; None if it is in no upload of a tenant."""
        parts = path.relative_to(self._directory).parts if path.is_relative_to(self._directory) else ()
        depth = 3 if parts[:1] == (TENANTS,) else 1
        if len(parts) < depth + 2 or parts[depth - 1] != NAMED:
            return None
        return self._directory.joinpath(*parts[: depth + 2])

    def _fetch(self, place: Path) -> None:
        """Fetch an upload; it appears once it is complete.

        One that cannot be used loses what stands for it in the bucket, so that it is stored again with the
        next job that names it.
        """
        try:
            self._fetch_all(place)
        except MistifyError as error:
            if error.code is ErrorCode.CORRUPT_PACKAGE:
                for start in (_FILE, _LISTING):
                    self._bucket.remove(start + place.parent.name)
            raise

    def _fetch_all(self, place: Path) -> None:
        digest = place.parent.name
        with TemporaryDirectory(prefix=".", dir=place.parent.parent) as partial:
            whole = Path(partial) / place.name
            if not self._download(_FILE, digest, whole):
                listing = Path(partial) / ".listing"
                if not self._download(_LISTING, digest, listing):
                    raise _unusable(digest, "is missing")
                for relative, file in read_listing(listing).items():
                    if not self._download(_FILE, file.sha256, whole / relative):
                        raise _unusable(file.sha256, "is missing")
            place.parent.mkdir(exist_ok=True)
            whole.rename(place)

    def _download(self, start: str, digest: str, path: Path) -> bool:
        """Fetch a file and check it; return False if there is none."""
        pieces = self._bucket.content(start + digest)
        if pieces is None:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        if _written(pieces, path) != digest:
            raise _unusable(digest, "is damaged")
        return True

    def _files_of(self, listing: str) -> set[str]:
        """Return the digests of the files of a directory."""
        with TemporaryDirectory() as directory:
            path = Path(directory) / listing
            self._download(_LISTING, listing, path)
            return {file.sha256 for file in read_listing(path).values()}

    def _remove_fetched(self) -> None:
        """Remove uploads that were fetched and not used for long."""
        if self._is_of_server:
            return
        for directory in chain.from_iterable((each / NAMED).glob("*") for each in self._directories()):
            with suppress(FileNotFoundError):
                if directory.stat().st_atime < time.time() - _KEPT_SECONDS:
                    shutil.rmtree(directory)


def _written(pieces: Iterator[bytes], path: Path) -> str:
    """Write a file, and return its SHA-256 (hex)."""
    digest = sha256()
    with path.open("wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _unusable(digest: str, state: str) -> MistifyError:
    return MistifyError(
        ErrorCode.CORRUPT_PACKAGE,
        f"the upload {digest} {state} in the bucket of the server; port the config again, which sends it",
    )
