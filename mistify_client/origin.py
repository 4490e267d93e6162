"""Where a package on a device is from, so that more of it can be fetched later.

The package says which server has the rest. The token for that server is noted beside the package, in its
state directory: a package may come from anyone, and must not choose a file of this device to be sent away.
"""

from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import ConfigDict

from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import write_json
from mistify.package.records import Record, read_record

#: The file with the origin in a package, and that with the token files in its state directory.
ORIGIN: Final = "origin.json"

_FORMAT: Final = 1

_Kind = TypeVar("_Kind", bound=Record)


class Origin(Record):
    """A goal of a server, whose package a directory has without some of its blocks.

    Attributes:
        format_version: The version of this file's format.
        server: The address, `host:port` or `tls://host:port`.
    """

    model_config = ConfigDict(extra="ignore")  # older ones name a token file, which does not count

    format_version: Literal[1] = _FORMAT
    server: str
    job: str
    goal: str

    def save(self, directory: Path) -> None:
        """Write it into the directory of the package.

        Raises:
            OSError: The file cannot be written.
        """
        write_json(directory / ORIGIN, self.model_dump(mode="json"))

    @classmethod
    def load(cls, directory: Path) -> "Origin | None":
        """Return the origin of a package; None where it has all of its files, or did not come from a server.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file cannot be read; STORE_VERSION, a newer Mistify wrote it.
        """
        return _read(directory, cls)


class _TokenFiles(Record):
    """The files with the access tokens of servers, by the server."""

    format_version: Literal[1] = _FORMAT
    token_files: dict[str, Path]


def note_token_file(state: Path, server: str, token_file: Path | None) -> None:
    """Note the file with the token for a server from which more of a package is fetched.

    Args:
        state: The state directory of the package that was shipped; created if it is absent and needed.
        server: The server of the package, or of a later version, by its origin.
        token_file: None to forget a file that was noted before.

    Raises:
        MistifyError: As for `token_file_for`.
        OSError: The file cannot be written.
    """
    noted = _token_files(state)
    changed = {name: path for name, path in noted.items() if name != server}
    if token_file is not None:
        changed[server] = token_file.absolute()
    if changed != noted:
        state.mkdir(exist_ok=True)
        write_json(state / ORIGIN, _TokenFiles(token_files=changed).model_dump(mode="json"))


def token_file_for(state: Path, server: str) -> Path | None:
    """Return the file with the token for a server; None where none was noted.

    Args:
        state: The state directory of the package that was shipped.
        server: The server of the version that is to be completed, by its origin.

    Raises:
        MistifyError: As for `Origin.load`, of the file in the state directory.
    """
    return _token_files(state).get(server)


def _token_files(state: Path) -> dict[str, Path]:
    noted = _read(state, _TokenFiles)
    return {} if noted is None else noted.token_files


def _read(directory: Path, kind: type[_Kind]) -> _Kind | None:
    """Return the origin in a directory; None where there is none."""
    try:
        return read_record(directory, ORIGIN, kind, _FORMAT)
    except MistifyError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise
