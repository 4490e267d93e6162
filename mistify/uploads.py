"""Uploaded files and directories: their names in configs, and the listings of directories.

`upload:DIGEST/train.npz` is the file with the SHA-256 DIGEST; the suffix of its name selects the reader.
`upload:DIGEST/photos/` is a directory; DIGEST is the SHA-256 of its listing, a JSON file with the size and
the SHA-256 of each of its files.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.parsing.validation import shown

_SCHEME: Final = "upload:"
_NAME: Final = re.compile(r"upload:([0-9a-f]{64})/([^/\0]+)(/?)")
_PREFIX: Final = re.compile(r"upload:[0-9a-f]{64}/")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

#: Limits in bytes: of file systems for one path component, and for a path, with room for its parent
#: directory.
_LONGEST_PART: Final = 255
_LONGEST_PATH: Final = 1024

#: Maximum number of files in a directory, and of bytes in its listing.
MOST_FILES: Final = 1_000_000
MOST_LISTING_BYTES: Final = 256 * 2**20


@dataclass(frozen=True)
class FileDigest:
    """The SHA-256 of a file, in hex, and its size in bytes."""

    sha256: str
    size: int

    def __post_init__(self) -> None:
        """Check the digest and the size.

        Raises:
            MistifyError: INVALID_DATASET, one is invalid.
        """
        if not _DIGEST.fullmatch(self.sha256):
            raise _invalid("sha256", repr(self.sha256), "64 hexadecimal digits in lower case")
        if self.size < 0:
            raise _invalid("size", f"{self.size}", "a number of bytes")


@dataclass(frozen=True)
class UploadName:
    """The name of an upload in a config.

    Attributes:
        sha256: Digest of the file, or of the directory's listing.
        name: Last component of its path on the user's machine.
        directory: Whether it is a directory.
    """

    sha256: str
    name: str
    directory: bool = False

    @classmethod
    def parse(cls, text: str) -> "UploadName | None":
        """Parse a name; return None for other texts."""
        match = _NAME.fullmatch(text)
        if match is None or not _is_plain(match[2]):
            return None
        return cls(match[1], match[2], bool(match[3]))

    def __str__(self) -> str:
        return f"{_SCHEME}{self.sha256}/{self.name}{'/' if self.directory else ''}"


def as_written(text: str) -> str:
    """Return a text with each upload replaced by its name on the user's machine."""
    return _PREFIX.sub("", text)


def listing_text(files: Mapping[str, FileDigest]) -> bytes:
    """Return the listing of a directory; equal directories have equal listings.

    Args:
        files: By path relative to the directory, with forward slashes.
    """
    entries = {path: [file.sha256, file.size] for path, file in files.items()}
    return json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()


def read_listing(listing: Path) -> dict[str, FileDigest]:
    """Return the files of a directory by path; check that all paths stay inside it.

    Raises:
        MistifyError: INVALID_DATASET, it is not a listing, or too large.
    """
    length = listing.stat().st_size
    if length > MOST_LISTING_BYTES:  # a config may pass any file off as a directory
        raise _invalid("the listing", f"{length:,} bytes", f"at most {MOST_LISTING_BYTES:,} bytes")
    try:
        entries = json.loads(listing.read_bytes())
        files = {path: FileDigest(sha256, size) for path, (sha256, size) in entries.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _invalid("the listing", str(error), "an object with SHA-256 and size of each file") from error
    if len(files) > MOST_FILES:
        raise _invalid("the listing", f"{len(files):,} files", f"at most {MOST_FILES:,}")
    for path in files:
        if path.startswith("/") or not all(map(_is_plain, path.split("/"))):
            raise _invalid("the listing", shown(path), "paths below the directory")
        if len(path.encode()) > _LONGEST_PATH:
            expected = f"at most {_LONGEST_PATH:,}"
            raise _invalid("the listing", f"a path of {len(path.encode()):,} bytes: {shown(path)}", expected)
    directories = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    for path in directories & files.keys():
        raise _invalid("the listing", shown(path), "a file or a directory, not both")
    return files


def _is_plain(part: str) -> bool:
    """Check whether a path component can only refer to an entry of its directory."""
    if part in ("", ".", "..") or "\0" in part:
        return False
    try:
        return len(part.encode()) <= _LONGEST_PART
    except UnicodeEncodeError:
        return False


def _invalid(place: str, value: str, expected: str) -> MistifyError:
    problem = Problem(place, value, expected, "upload it again with this version of Mistify")
    return MistifyError(ErrorCode.INVALID_DATASET, "the upload cannot be used", [problem])
