"""Downloads of packages: resumable and verified; a file is either complete or absent."""

from collections.abc import Callable, Collection, Iterable, Set
from contextlib import suppress
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files import PART, locked, sync_file
from mistify.jobs.job import PackageFile
from mistify.package.manifest import MANIFEST, Manifest
from mistify.package.records import describe_file

#: (name of a file of the package, offset) -> its bytes from the offset on.
ReadFrom = Callable[[str, int], Iterable[bytes]]


def download_package(
    files: Iterable[PackageFile], directory: Path, read_from: ReadFrom, only: Collection[str] | None = None
) -> None:
    """Download every file of a package that the directory does not have yet, the manifest last.

    A `*.part` file of an interrupted download is continued. Processes that download into the same
    directory wait for each other. With the manifest, files of another package go that was there before.

    Args:
        files: the files of the package, with their sizes and digests.
        directory: where the files belong; created if it is absent.
        read_from: reads a file of the package from an offset on.
        only: the names of those to download; None for all.

    Raises:
        MistifyError: CORRUPT_PACKAGE if a file does not match its digest, twice in a row.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        by_name = {file.name: file for file in files}
        names = [name for name in by_name if only is None or name in only]
        others = _names_in(directory) - by_name.keys() if MANIFEST in names else frozenset()
        for name in sorted(names, key=lambda name: name == MANIFEST):
            _download(by_name[name], directory, read_from)
        for name in others:
            (directory / name).unlink(missing_ok=True)


def _names_in(directory: Path) -> Set[str]:
    """Return the names of the files of the package that is in a directory; none without one."""
    with suppress(MistifyError):
        return Manifest.load(directory).files.keys()
    return frozenset()


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
