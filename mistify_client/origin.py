"""Where a package on a device is from, so that more of it can be fetched later."""

from pathlib import Path
from typing import Final, Literal

from mistify.errors import ErrorCode, MistifyError
from mistify.files import write_json
from mistify.package.records import Record, read_record

ORIGIN: Final = "origin.json"

_FORMAT: Final = 1


class Origin(Record):
    """A goal of a server, whose package a directory has without some of its blocks.

    Attributes:
        format_version: Of this file.
        server: Its `host:port`, or `tls://host:port`.
        job: The id of the job.
        goal: The id of the goal.
        token_file: The file with the server's access token; None where none was used, or it was in no file.
    """

    format_version: Literal[1] = _FORMAT
    server: str
    job: str
    goal: str
    token_file: Path | None = None

    def save(self, directory: Path) -> None:
        """Write it into the directory of the package.

        Raises:
            OSError: It cannot be written.
        """
        write_json(directory / ORIGIN, self.model_dump(mode="json"))

    @classmethod
    def load(cls, directory: Path) -> "Origin | None":
        """Return the origin of a package; None where it has all of its files, or came by another way.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file cannot be read; STORE_VERSION, a newer Mistify wrote it.
        """
        try:
            return read_record(directory, ORIGIN, cls, _FORMAT)
        except MistifyError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise
