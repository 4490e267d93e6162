"""Content-addressed files: models, checkpoints, packages.

An artifact's name is the SHA-256 of its content plus a suffix that tells readers the format, such as
`9f86d0...a08.keras`. Files are never changed, and identical content is stored once. If a file is damaged on
disk, `intact` reports it, and putting the content again replaces it.
"""

import filecmp
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from math import inf
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import try_lock
from mistify.files.writing import sync_file, sync_path
from mistify.jobs.job import PackageFile

_NAME = re.compile(r"(?P<digest>[0-9a-f]{64})(?P<suffix>(\.[a-z0-9]{1,16})?)")
_SUFFIX = re.compile(r"\.[a-z0-9]{1,16}")
_CHUNK = 1 << 20
_LOCK = "lock"

#: Number of cached integrity checks.
_REMEMBERED = 4_096

#: Name of the artifacts directory in a store.
ARTIFACTS = "artifacts"


def digest_of(name: str) -> str:
    """Return the SHA-256 (hex) of an artifact's content, taken from its name."""
    return _checked(name)["digest"]


def artifact_of(file: PackageFile) -> str:
    """Return the name of the artifact with the content and suffix of a package's file."""
    return file.sha256 + Path(file.name).suffix.lower()


class Artifacts:
    """The artifacts in one directory. Any number of processes can put and read concurrently."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._incoming = directory / "incoming"

    def put(self, content: Path | bytes, suffix: str | None = None) -> str:
        """Store a file or bytes, and return the artifact's name once the content is safely on disk.

        Args:
            content: A file to copy, or the bytes themselves.
            suffix: The suffix with its dot; None for the file's own suffix, or none for bytes.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written; NOT_FOUND, the given file
                cannot be read.
            ValueError: The suffix is not a plain suffix.
        """
        if suffix is None:
            suffix = content.suffix.lower() if isinstance(content, Path) else ""
        if suffix and not _SUFFIX.fullmatch(suffix):
            raise ValueError(f"got the suffix {suffix!r}; expected a dot, then up to 16 letters and digits")
        with writing(self.directory):
            return self._put(content, suffix)

    def path(self, name: str) -> Path:
        """Return the path of an artifact.

        Raises:
            MistifyError: NOT_FOUND, there is no such artifact.
        """
        path = self.place(name)
        if not path.is_file():
            raise MistifyError(ErrorCode.NOT_FOUND, f"the artifact {name} is not in the server's store")
        return path

    def intact(self, name: str) -> Path:
        """Return the path of an artifact after checking its content against its name.

        The content is read only if the file has changed since its last check.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the artifact is missing or damaged.
        """
        try:
            path = self.path(name)
            if _is_intact(path, digest_of(name), *_stamp(path)):
                return path
            state = "is damaged"
        except (MistifyError, FileNotFoundError):
            state = "is missing"
        raise MistifyError(
            ErrorCode.CORRUPT_PACKAGE,
            f"the artifact {name} {state} in the server's store; port the config again into another "
            "directory, which replaces the file",
        )

    def size(self, name: str) -> int:
        """Return an artifact's size in bytes."""
        return self.path(name).stat().st_size

    def incoming(self) -> Path:
        """Return a directory for incomplete files, which is cleared at server startup.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        with writing(self.directory):
            self._incoming.mkdir(parents=True, exist_ok=True)
        return self._incoming

    def names(self) -> list[str]:
        """Return the names of all artifacts, without other files such as those of interrupted copies."""
        return [path.name for path in self.directory.glob("??/*") if _NAME.fullmatch(path.name)]

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Protect new, unreferenced artifacts from removal within the block.

        Raises:
            MistifyError: UNAVAILABLE, another process is in `removing`.
        """
        with self._locked("jobs are being removed from its store", shared=True):
            yield

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Prevent additions within the block, so that unreferenced artifacts can be removed.

        Raises:
            MistifyError: UNAVAILABLE, another process is in `adding` or `removing`.
        """
        with self._locked("a model is being added to its store", shared=False):
            yield

    def remove(self, name: str, before: float = inf) -> int:
        """Delete an unreferenced artifact, if it exists.

        Args:
            before: Seconds since 1970; artifacts put at this time or later are kept.

        Returns:
            Number of bytes freed.
        """
        place = self.place(name)
        try:
            if place.stat().st_mtime >= before:
                return 0
            # Move the file first: a later `put` then finds no file, and a `put` that has just ended is
            # noticed.
            aside = self.incoming() / f"removed-{name}"
            place.replace(aside)
        except FileNotFoundError:
            return 0
        status = aside.stat()
        if status.st_mtime >= before:
            aside.replace(place)
            return 0
        aside.unlink()
        return status.st_size

    def clear_incoming(self) -> None:
        """Remove incomplete files left by killed writers."""
        shutil.rmtree(self._incoming, ignore_errors=True)

    @contextmanager
    def _locked(self, reason: str, *, shared: bool) -> Iterator[None]:
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not try_lock(handle, shared=shared):
                raise MistifyError(
                    ErrorCode.UNAVAILABLE,
                    f"the server's store is in use, {reason}; try again later",
                )
            yield
        finally:
            os.close(handle)

    def place(self, name: str) -> Path:
        """Return the path that an artifact has, whether it exists or not."""
        return self.directory / _checked(name)["digest"][:2] / name

    def _put(self, content: Path | bytes, suffix: str) -> str:
        handle, temporary = tempfile.mkstemp(dir=self.incoming())
        try:
            with os.fdopen(handle, "wb") as target:
                digest = hashlib.sha256()
                for chunk in _chunks(content):
                    digest.update(chunk)
                    target.write(chunk)
                sync_file(target)
            name = digest.hexdigest() + suffix
            place = self.place(name)
            if not _is_stored(place, temporary):
                place.parent.mkdir(exist_ok=True)
                Path(temporary).replace(place)
                sync_path(place.parent)
                sync_path(self.directory)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        return name


def artifacts_of(store: Path) -> Artifacts:
    """Return the artifacts in a store's directory, the only part of the store that workers need."""
    return Artifacts(store / ARTIFACTS)


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Translate errors in writing to a directory into advice for the operator.

    Raises:
        MistifyError: UNAVAILABLE, the disk is full or cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"the server's {directory.name} cannot be written ({error.strerror}); "
            "free space or restore write access",
        ) from error


def _is_stored(place: Path, content: str) -> bool:
    """Check whether an artifact has the given content, and mark it as in use, for `remove`."""
    try:
        os.utime(place)
        return filecmp.cmp(place, content, shallow=False)
    except FileNotFoundError:
        return False


def _stamp(path: Path) -> tuple[int, int, int, int]:
    """Return a value that changes with the file, even if its size and modification time are reset."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def sha256_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=_REMEMBERED)
def _is_intact(path: Path, digest: str, *_stamp: int) -> bool:
    return sha256_of(path) == digest


def _checked(name: str) -> re.Match[str]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise MistifyError(ErrorCode.NOT_FOUND, f"{name!r} is not the name of an artifact")
    return match


def _chunks(content: Path | bytes) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    try:
        with content.open("rb") as source:
            while chunk := source.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise MistifyError(
            ErrorCode.NOT_FOUND, f"{content} cannot be read ({error.strerror}); check its path"
        ) from error
