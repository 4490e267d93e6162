"""Names that operators give to things in the store: models and groups."""

import re
from typing import Final

from mistify.errors import ErrorCode, MistifyError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(name: str) -> None:
    """Check that a name can be used.

    Raises:
        MistifyError: INVALID_CONFIG, it cannot.
    """
    if not _NAME.fullmatch(name):
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f'got the name "{name}"; expected up to 64 letters, digits, ".", "_" and "-"; rename it',
        )
