"""Downloads of packages: resumable and verified; a file is either complete or absent."""

import shutil
from collections.abc import Callable, Collection, Iterable, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify.files.writing import PART, open_partial, sync_file
from mistify.jobs.job import PackageFile
from mistify.package.manifest import MANIFEST, Manifest
from mistify.package.records import FileName, describe_file
from mistify.package.signature import SIGNATURE_FILE
from mistify.parsing.quantities import format_bytes
from mistify_client.origin import ORIGIN

#: Bytes that stay free on the disk of a download for other uses; less on a small disk.
_RESERVED_BYTES: Final = 64_000_000
_RESERVED_PART: Final = 20

_FILE_NAME: Final[TypeAdapter[str]] = TypeAdapter(FileName)

#: (name of a file in the package, offset) -> its bytes from the offset.
ReadFrom = Callable[[str, int], Iterable[bytes]]


def _room(directory: Path) -> int:
    """Return how many bytes a download may use on the disk of a directory."""
    disk = shutil.disk_usage(directory)
    return max(0, disk.free - min(_RESERVED_BYTES, disk.total // _RESERVED_PART))


def download_package(
    files: Iterable[PackageFile],
    directory: Path,
    read_from: ReadFrom,
    only: Collection[str] | None = None,
    *,
    room: Callable[[Path], int] = _room,
) -> None:
    """Download every file of a package that the directory does not have yet, the manifest last.

    The `*.part` file of an interrupted download is resumed. Only one process at a time downloads into a
    directory. When the manifest arrives, files of an earlier package in the directory are removed; its
    signature is removed before that, because it is not that of the new manifest.

    Args:
        files: The files of the package, with their sizes and digests.
        directory: The directory for the files; created if it does not exist.
        read_from: Reads a file of the package from an offset.
        only: Names of the files to download; None for all.
        room: Returns the number of bytes that a download may use on the disk of a directory.

    Raises:
        MistifyError: NO_ROOM if they do not fit on the disk; CORRUPT_PACKAGE if a file fails verification
            twice in a row, or has a name that is not allowed in packages.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        by_name = {file.name: file for file in files}
        names = [name for name in by_name if only is None or name in only]
        others = _names_in(directory) - by_name.keys() if MANIFEST in names else frozenset()
        wanted = [by_name[name] for name in sorted(names, key=lambda name: name == MANIFEST)]
        missing = [file for file in wanted if not _is_downloaded(file, directory)]
        _check_room(missing, directory, room(directory))
        if MANIFEST in names and SIGNATURE_FILE not in by_name:
            (directory / SIGNATURE_FILE).unlink(missing_ok=True)
        for file in missing:
            _download(file, directory, read_from)
        for name in others:
            (directory / name).unlink(missing_ok=True)


def _names_in(directory: Path) -> Set[str]:
    """Return the file names in the manifest of the package in a directory; none without a package."""
    with suppress(MistifyError):
        return Manifest.load(directory).files.keys()
    return frozenset()


def _is_downloaded(file: PackageFile, directory: Path) -> bool:
    target = _target(file, directory)
    return target.is_file() and _matches(file, target)


def _check_room(missing: Iterable[PackageFile], directory: Path, room: int) -> None:
    """Raise an error if the files would fill the disk; bytes already downloaded need no more space."""
    needed = sum(max(0, file.size - _partial_bytes(_partial(file, directory))) for file in missing)
    if needed > room:
        raise MistifyError(
            ErrorCode.NO_ROOM,
            f"there is no room for the package in {directory}: it needs {format_bytes(needed, 3)} more, "
            f"and {format_bytes(room, 3)} are left for it; free some, or choose a directory on another disk",
        )


def _partial_bytes(partial: Path) -> int:
    return partial.stat().st_size if partial.exists() else 0


def _download(file: PackageFile, directory: Path, read_from: ReadFrom) -> None:
    target, partial = _target(file, directory), _partial(file, directory)
    for _ in range(2):
        _continue(file, partial, read_from)
        if _matches(file, partial):
            partial.replace(target)
            return
        partial.unlink()
    raise MistifyError(
        ErrorCode.CORRUPT_PACKAGE,
        f"{file.name} did not arrive as the server described it ({file.size} bytes, SHA-256 {file.sha256}), "
        "twice; try again, and if this persists, port its config again into another directory: the server's "
        "copy is damaged",
    )


def _target(file: PackageFile, directory: Path) -> Path:
    """Return the path of a file; its name comes from the server, and must be allowed in manifests.

    So it cannot point elsewhere. The origin file is written by the client itself.
    """
    with suppress(ValidationError):
        if _FILE_NAME.validate_python(file.name) != ORIGIN:
            return directory / file.name
    raise MistifyError(
        ErrorCode.CORRUPT_PACKAGE,
        f"the package has a file named {file.name!r}, which is not a plain file name",
    )


def _partial(file: PackageFile, directory: Path) -> Path:
    target = _target(file, directory)
    return target.with_name(target.name + PART)


def _continue(file: PackageFile, partial: Path, read_from: ReadFrom) -> None:
    """Append the missing bytes to a partial file; stop if the server sends more than it announced."""
    with open_partial(partial) as stream:
        if stream.tell() >= file.size:
            return
        for data in read_from(file.name, stream.tell()):
            stream.write(data)
            if stream.tell() > file.size:
                break
        sync_file(stream)


def _matches(file: PackageFile, path: Path) -> bool:
    actual = describe_file(path)
    return (actual.size, actual.sha256) == (file.size, file.sha256)
