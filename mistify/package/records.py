"""Records of a package's content: JSON files that list the other files with their sizes and digests."""

import hashlib
import json
from mmap import mmap
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.parsing.validation import problems_of

_CHUNK = 1 << 20

_Kind = TypeVar("_Kind", bound=BaseModel)

FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    """A part of a package's description."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class PackagedFile(Record):
    """A file of the package: size in bytes, SHA-256 in hex."""

    size: Annotated[int, Field(ge=0)]
    sha256: Sha256

    @classmethod
    def of(cls, content: bytes | mmap) -> "PackagedFile":
        """Return the size and the digest of the content."""
        return cls(size=len(content), sha256=hashlib.sha256(content).hexdigest())


class NamedFile(Protocol):
    """A file with its name and its expected content."""

    @property
    def file(self) -> str:
        """Its name in a directory."""
        ...

    @property
    def content(self) -> PackagedFile:
        """Its size and digest."""
        ...


def read_record(directory: Path, name: str, kind: type[_Kind], newest: int) -> _Kind:
    """Read a JSON file that describes the other files of a directory.

    Args:
        name: Name of the JSON file.
        kind: The model of the file's content.
        newest: The newest `format_version` that can be read.

    Raises:
        MistifyError: NOT_FOUND, there is no such file; STORE_VERSION, a newer version of Mistify wrote it;
            CORRUPT_PACKAGE, it cannot be read, or with every problem in it.
    """
    return parse_record(directory / name, read_content(directory, name), kind, newest)


def read_content(directory: Path, name: str) -> bytes:
    """Return the content of a file that describes the other files of a directory.

    Raises:
        MistifyError: NOT_FOUND if there is none, CORRUPT_PACKAGE if it cannot be read.
    """
    path = directory / name
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"{directory} is not a package: {_why(directory, name)}"
        raise MistifyError(ErrorCode.NOT_FOUND, message) from error
    except OSError as error:  # for example, it is a directory
        value = error.strerror or str(error)
        problem = Problem(str(path), value, "a file that can be read", "fetch the package again")
        raise corrupt_package(directory, [problem]) from error


def _why(directory: Path, name: str) -> str:
    if not directory.exists():
        return "there is no such directory"
    if directory.is_file():
        reason, patterns, searched = "it is a file", [name], directory.parent
    else:
        reason, patterns, searched = f"it has no {name}", [f"*/{name}", f"goals/*/{name}"], directory
    packages = sorted(file.parent for pattern in patterns for file in searched.glob(pattern))
    return reason + (f'; did you mean "{packages[0]}"?' if packages else "")


def parse_record(path: Path, content: bytes, kind: type[_Kind], newest: int) -> _Kind:
    """Return the record in the content of a JSON file.

    Args:
        path: The file, for error messages.
        content: The bytes of the file.
        kind: The model of the record.
        newest: The newest `format_version` that can be read.

    Raises:
        MistifyError: STORE_VERSION if a newer version of Mistify wrote it, CORRUPT_PACKAGE with every problem
            in it.
    """
    try:
        return kind.model_validate_json(content)
    except ValidationError:
        return _checked(path, content, kind, newest)


def _checked(path: Path, content: bytes, kind: type[_Kind], newest: int) -> _Kind:
    """Return the record if pydantic could not read the content directly, or report its problem."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        problem = Problem(
            str(path), "a file that is not valid JSON", "a manifest", f"fetch the package again ({error})"
        )
        raise corrupt_package(path.parent, [problem]) from error
    version = value.get("format_version") if isinstance(value, dict) else None
    if isinstance(version, int) and version > newest:
        problem = Problem(str(path), f"format version {version}", f"at most {newest}", "update Mistify")
        raise MistifyError(ErrorCode.STORE_VERSION, f"{path.parent} is from a newer Mistify", [problem])
    try:
        return kind.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise corrupt_package(path.parent, problems_of(error, kind, value=value)) from error


def describe_file(path: Path) -> PackagedFile:
    """Return the size and the digest of a file."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return PackagedFile(size=size, sha256=digest.hexdigest())


def digest_of(file: PackagedFile) -> str:
    """Describe a file's content in error messages."""
    return f"{file.size} bytes with SHA-256 {file.sha256}"


def corrupt_package(directory: Path, problems: list[Problem]) -> MistifyError:
    """Return the error of a package with damaged files."""
    return MistifyError(ErrorCode.CORRUPT_PACKAGE, f"the package {directory} is damaged", problems)
