"""Uploads under their names in configs: links to their files, or directories of such links.

`DIRECTORY/DIGEST/NAME` is an upload. The links keep its files, so that they do not depend on the name.
"""

import errno
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from mistify.files.locking import locked
from mistify.parsing.validation import InvalidValue
from mistify.uploads import UploadName, read_listing


class UploadNames:
    """The names of a tenant's uploads. Several servers can share the directory.

    Args:
        directory: The directory of names; created if it does not exist.
        arriving: A directory on the same disk for files that are not in their places yet.
        place: Returns the path of a complete file by its SHA-256.
    """

    def __init__(self, directory: Path, arriving: Path, place: Callable[[str], Path]) -> None:
        self._directory, self._arriving, self._place = directory, arriving, place

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create names or remove files, as one at a time. This can take long, so never on the event loop."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with locked(self._directory):
            yield

    def path_of(self, upload: UploadName) -> Path:
        """Return the path of an upload, for a caller that holds the lock; created if it does not exist.

        Raises:
            InvalidValue: The upload is missing or incomplete.
            MistifyError: INVALID_DATASET, the listing of a directory is invalid.
        """
        path = self._directory / upload.sha256 / upload.name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            if upload.directory:
                self._link_directory(upload, path)
            else:
                self._link(str(upload), upload.sha256, path)
        return path

    def remove_except(self, digests: Collection[str], is_unused: Callable[[Path], bool]) -> None:
        """Remove the names of uploads that are not used, for a caller that holds the lock.

        Args:
            digests: SHA-256 digests of uploads whose names stay.
            is_unused: Whether the names in a directory, those of one upload, can be removed.
        """
        for directory in self._directory.glob("*"):
            if directory.name not in digests and is_unused(directory):
                shutil.rmtree(directory)

    def _link(self, name: str, digest: str, path: Path) -> None:
        """Give a file a name by a hard link, or by a copy if the file has too many links."""
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
            renewed.replace(place)  # later names are links to the copy

    def _link_directory(self, upload: UploadName, path: Path) -> None:
        """Create a directory of links, which appears only once complete."""
        listing = self._place(upload.sha256)
        if not listing.is_file():
            raise _missing(str(upload))
        partial = self._directory / f".{upload.sha256}"
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


def _missing(name: str) -> InvalidValue:
    return InvalidValue(
        name, "an upload that the server has", "submit the config with `mistify port`, which uploads it"
    )
