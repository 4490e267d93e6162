"""The origin of a package on a device, for downloading more of its files later.

The package names the server that has the other files. The token for that server is recorded in the state
directory next to the package: a package may come from anyone, and must not choose which file's content is
sent.
"""

from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import ConfigDict

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify.files.writing import write_json
from mistify.package.records import Record, read_record

#: The file with the origin in a package, and the file with the token files in its state directory.
ORIGIN: Final = "origin.json"

_FORMAT: Final = 1

_Kind = TypeVar("_Kind", bound=Record)


class Origin(Record):
    """A goal on a server whose package was downloaded without some of its blocks.

    Attributes:
        format_version: The version of this file's format.
        server: The address, `host:port` or `tls://host:port`.
    """

    model_config = ConfigDict(extra="ignore")  # older files name a token file, which is ignored

    format_version: Literal[1] = _FORMAT
    server: str
    job: str
    goal: str

    def save(self, directory: Path) -> None:
        """Write the origin into the directory of the package.

        Raises:
            OSError: The file cannot be written.
        """
        write_json(directory / ORIGIN, self.model_dump(mode="json"))

    @classmethod
    def load(cls, directory: Path) -> "Origin | None":
        """Return the origin of a package; None if it is complete, or did not come from a server.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file cannot be read; STORE_VERSION, a newer Mistify wrote it.
        """
        return _read(directory, cls)


class _TokenFiles(Record):
    """Server -> file with its access token."""

    format_version: Literal[1] = _FORMAT
    token_files: dict[str, Path]


def note_token_file(state: Path, server: str, token_file: Path | None) -> None:
    """Record the token file of a server, for downloading more of a package from it.

    Args:
        state: The state directory of the shipped package; created if it is missing and needed.
        server: The server of the package, or of a later version, from its origin.
        token_file: None to remove an earlier record.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the file in the state directory cannot be read; STORE_VERSION, a newer
            Mistify wrote it.
        OSError: The file cannot be written.
    """
    wanted = None if token_file is None else token_file.absolute()
    if token_file_for(state, server) == wanted:
        return
    state.mkdir(exist_ok=True)
    with locked(state):  # the threads of a monitor may record different servers
        noted = {**_token_files(state), server: wanted}
        token_files = {name: path for name, path in noted.items() if path is not None}
        write_json(state / ORIGIN, _TokenFiles(token_files=token_files).model_dump(mode="json"))


def token_file_for(state: Path, server: str) -> Path | None:
    """Return the token file of a server; None if none was recorded.

    Args:
        state: The state directory of the shipped package.
        server: The server of the version to complete, from its origin.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the file in the state directory cannot be read; STORE_VERSION, a newer
            Mistify wrote it.
    """
    return _token_files(state).get(server)


def _token_files(state: Path) -> dict[str, Path]:
    noted = _read(state, _TokenFiles)
    return {} if noted is None else noted.token_files


def _read(directory: Path, kind: type[_Kind]) -> _Kind | None:
    """Return the origin in a directory; None if there is none."""
    try:
        return read_record(directory, ORIGIN, kind, _FORMAT)
    except MistifyError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise
