"""Downloads of packages: resumable and verified; a file is either complete or absent."""

from collections.abc import Callable, Iterable
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files import PART, locked, sync_file
from mistify.jobs.job import PackageFile
from mistify.package.manifest import MANIFEST
from mistify.package.records import describe_file

#: (name of a file of the package, offset) -> its bytes from the offset on.
ReadFrom = Callable[[str, int], Iterable[bytes]]


def download_package(files: Iterable[PackageFile], directory: Path, read_from: ReadFrom) -> None:
    """Download every file of a package that the directory does not have yet, the manifest last.

    A `*.part` file of an interrupted download is continued. Processes that download into the same
    directory wait for each other.

    Args:
        files: the files of the package, with their sizes and digests.
        directory: where the files belong; created if it is absent.
        read_from: reads a file of the package from an offset on.

    Raises:
        MistifyError: CORRUPT_PACKAGE if a file does not match its digest, twice in a row.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        for file in sorted(files, key=lambda file: file.name == MANIFEST):
            _download(file, directory, read_from)


def _download(file: PackageFile, directory: Path, read_from: ReadFrom) -> None:
    target = _target(file, directory)
    if target.is_file() and _matches(file, target):
        return
    partial = target.with_name(target.name + PART)
    for _ in range(2):
        _continue(file, partial, read_from)
        if _matches(file, partial):
            partial.replace(target)
            return
        partial.unlink()
    raise MistifyError(
        ErrorCode.CORRUPT_PACKAGE,
        f"{file.name} did not arrive as the server described it ({file.size} bytes, SHA-256 {file.sha256}), "
        "twice; try again, and if it stays so, port the goal anew: the server's copy is damaged",
    )


def _target(file: PackageFile, directory: Path) -> Path:
    """Return the path of a file; its name comes from the server and must not lead out of the directory."""
    if file.name in ("", ".", "..") or any(letter in "/\\\0" for letter in file.name):
        raise MistifyError(
            ErrorCode.CORRUPT_PACKAGE,
            f"the package has a file named {file.name!r}, which is not a plain name",
        )
    return directory / file.name


def _continue(file: PackageFile, partial: Path, read_from: ReadFrom) -> None:
    """Append the missing bytes to a partial file; stop if the server sends more than it announced."""
    with partial.open("ab") as stream:
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
