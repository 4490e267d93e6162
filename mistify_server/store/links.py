"""Files in a store's directory that link it to what else belongs to the store: a database, a bucket."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import write_bytes

Link = TypeVar("Link", bound=BaseModel)


def read_link(path: Path, kind: type[Link]) -> Link | None:
    """Return the link in a file; None if there is no file.

    Raises:
        MistifyError: STORE_VERSION, it cannot be read.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise MistifyError(
            ErrorCode.STORE_VERSION, f"{path} cannot be read; restore it, or the store from a backup"
        ) from error


def write_link(path: Path, link: BaseModel) -> None:
    """Replace the link in a file, which only its owner can read."""
    write_bytes(path, link.model_dump_json().encode(), durable=True, private=True)
