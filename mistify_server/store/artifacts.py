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
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from math import inf
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import try_lock
from mistify.files.suffixes import suffix_of
from mistify.files.writing import sync_file, sync_path
from mistify.jobs.job import PackageFile
from mistify.uploads import UploadName
from mistify_server.store.preparation_files import LocalPreparationFiles, PreparationFiles

_NAME = re.compile(r"(?P<digest>[0-9a-f]{64})(?P<suffix>(\.[a-z0-9]{1,16})?)")
_SUFFIX = re.compile(r"\.[a-z0-9]{1,16}")
_PIECE = 1 << 20
_LOCK = "lock"

#: Number of cached integrity checks.
_REMEMBERED = 4_096

#: Name of the artifacts directory in a store, and of that of preparations in it.
ARTIFACTS = "artifacts"
PREPARATIONS = "preparations"


def digest_of(name: str) -> str:
    """Return the SHA-256 (hex) of an artifact's content, taken from its name."""
    return _checked(name)["digest"]


def is_artifact(name: str) -> bool:
    """Check whether a name is that of an artifact."""
    return _NAME.fullmatch(name) is not None


def artifact_of(file: PackageFile) -> str:
    """Return the name of the artifact with the content and suffix of a package's file."""
    return file.sha256 + suffix_of(file.name)


class Artifacts:
    """The artifacts in one directory. Any number of processes can put and read concurrently.

    `mistify_server.store.objects` keeps them in a bucket instead, with copies in the directory.
    """

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
            suffix = suffix_of(content) if isinstance(content, Path) else ""
        if suffix and not _SUFFIX.fullmatch(suffix):
            raise ValueError(f"got the suffix {suffix!r}; expected a dot, then up to 16 letters and digits")
        with writing(self.directory):
            return self._keep(_pieces_to_put(content), suffix)

    def path(self, name: str) -> Path:
        """Return the path of an artifact.

        Raises:
            MistifyError: NOT_FOUND, there is no such artifact.
        """
        path = self.place(name)
        if not path.is_file():
            raise missing(name)
        return path

    def intact(self, name: str) -> Path:
        """Return the path of an artifact after checking its content against its name.

        The content is read only if the file has changed since its last check.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the artifact is missing or damaged.
        """
        try:
            path = self.path(name)
        except MistifyError as error:
            raise unusable(name, "is missing") from error
        if not is_intact(path, digest_of(name)):
            raise unusable(name, "is damaged")
        return path

    def size(self, name: str) -> int:
        """Return an artifact's size in bytes.

        Raises:
            MistifyError: NOT_FOUND, there is no such artifact.
        """
        return self.path(name).stat().st_size

    def content(self, name: str) -> Iterator[bytes]:
        """Yield the content of an artifact in pieces, as it is: it may be damaged.

        Raises:
            MistifyError: NOT_FOUND, there is no such artifact; CORRUPT_PACKAGE, it cannot be read.
        """
        try:
            yield from pieces_of(self.place(name))
        except FileNotFoundError as error:
            raise missing(name) from error
        except OSError as error:
            raise unusable(name, "cannot be read") from error

    def restore(self, name: str, content: Iterable[bytes]) -> Path:
        """Write the file of an artifact, and return its path.

        Raises:
            MistifyError: CORRUPT_PACKAGE, this is not its content; UNAVAILABLE, the disk is full or cannot
                be written.
        """
        digest = digest_of(name)
        with writing(self.directory):
            self._keep(content, name.removeprefix(digest), digest)
        return self.place(name)

    def share(self, upload: UploadName, place: Callable[[str], Path]) -> None:
        """Make an upload readable on other machines that run tasks; here, they share the store's directory.

        Args:
            place: Returns the path of a complete file by its SHA-256 (hex).
        """

    @contextmanager
    def at_hand(self, paths: Iterable[str]) -> Iterator[None]:
        """Keep the files at these paths readable within the block, if they are artifacts or uploads.

        A task reads them later and more than once. Here, they are in the store's directory anyway.

        Raises:
            MistifyError: CORRUPT_PACKAGE, a file is missing or damaged.
        """
        yield

    def incoming(self) -> Path:
        """Return a directory for incomplete files, which is cleared at server startup.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        with writing(self.directory):
            self._incoming.mkdir(parents=True, exist_ok=True)
        return self._incoming

    def preparation_files(self) -> PreparationFiles:
        """Return the files of the preparations in the same store."""
        return LocalPreparationFiles(self.directory / PREPARATIONS)

    def names(self) -> list[str]:
        """Return the names of all artifacts, without other files such as those of interrupted copies."""
        return [path.name for path in self.directory.glob("??/*") if is_artifact(path.name)]

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

    def remove_shared(self, referenced: Collection[str], before: float = inf) -> None:
        """Delete what `share` has stored, except for files with these SHA-256 digests (hex) and new ones."""

    def remove_all(self, names: Iterable[str], before: float = inf) -> int:
        """Delete unreferenced artifacts as `remove` does, and return the number of bytes freed."""
        return sum(self.remove(name, before) for name in names)

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

    def _keep(self, pieces: Iterable[bytes], suffix: str, expected: str | None = None) -> str:
        """Write a file in pieces, and return its name.

        Args:
            expected: The SHA-256 (hex) that the content must have; None for any.

        Raises:
            MistifyError: CORRUPT_PACKAGE, it has another one.
        """
        handle, temporary = tempfile.mkstemp(dir=self.incoming())
        try:
            with os.fdopen(handle, "wb") as target:
                digest = hashlib.sha256()
                for piece in pieces:
                    digest.update(piece)
                    target.write(piece)
                sync_file(target)
            name = digest.hexdigest() + suffix
            if expected not in (None, digest.hexdigest()):
                raise unusable(f"{expected}{suffix}", "is damaged")
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
    """Return the artifacts in a store's directory, even if it has its own in a bucket."""
    return Artifacts(store / ARTIFACTS)


def missing(name: str) -> MistifyError:
    """Return the error for an artifact that does not exist."""
    return MistifyError(ErrorCode.NOT_FOUND, f"the artifact {name} is not in the server's store")


def unusable(name: str, state: str) -> MistifyError:
    """Return the error for an artifact that "is missing", "is damaged" or "cannot be read"."""
    return MistifyError(
        ErrorCode.CORRUPT_PACKAGE,
        f"the artifact {name} {state} in the server's store; port the config again into another "
        "directory, which replaces the file",
    )


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


def is_intact(path: Path, digest: str) -> bool:
    """Check a file against its SHA-256 (hex); it is read only if it has changed since the last check.

    A missing file is not intact.
    """
    try:
        return _has_content(path, digest, *_stamp(path))
    except FileNotFoundError:
        return False


@lru_cache(maxsize=_REMEMBERED)
def _has_content(path: Path, digest: str, *_stamp: int) -> bool:
    return sha256_of(path) == digest


def pieces_of(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in pieces."""
    with path.open("rb") as source:
        while piece := source.read(_PIECE):
            yield piece


def _checked(name: str) -> re.Match[str]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise MistifyError(ErrorCode.NOT_FOUND, f"{name!r} is not the name of an artifact")
    return match


def _pieces_to_put(content: Path | bytes) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    try:
        yield from pieces_of(content)
    except OSError as error:
        raise MistifyError(
            ErrorCode.NOT_FOUND, f"{content} cannot be read ({error.strerror}); check its path"
        ) from error
