"""Options that a device found or can make for a package, in a file of the package's state."""

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, ValidationError

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files.writing import write_json
from mistify.package.records import Record


class RecordedOptions(Record):
    """The base class of these files.

    Attributes:
        FILE: The path of the file in the state directory.
        NAME: Names the content for people.
        FIX: The remedy for a damaged file.
        generation: The switchboard's generation from which on the package runs these options.
    """

    FILE: ClassVar[str]
    NAME: ClassVar[str]
    FIX: ClassVar[str]

    generation: Annotated[int, Field(ge=0)] = 0

    def save(self, state: Path) -> None:
        """Write the file into a state directory; a power cut leaves either the old or the new one.

        Raises:
            OSError: It cannot be written.
        """
        write_json(state / self.FILE, self.model_dump(mode="json"), durable=True)

    @classmethod
    def read(cls, state: Path) -> Self | None:
        """Return the options in a state directory; None if there is no file.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file cannot be read.
        """
        path = state / cls.FILE
        try:
            return cls.model_validate_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValidationError) as error:
            value = error.strerror if isinstance(error, OSError) else f"{error.error_count()} mistakes"
            problem = Problem(str(path), value or str(error), f"a {cls.NAME}", cls.FIX)
            message = f"the {cls.NAME} cannot be read"
            raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message, [problem]) from error
