"""Names that operators give to models, groups and tokens."""

import re
from typing import Final

from mistify.errors import ErrorCode, MistifyError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(name: str) -> None:
    """Raise an error if a name is invalid.

    Raises:
        MistifyError: INVALID_CONFIG.
    """
    if not _NAME.fullmatch(name):
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f'got the name "{name}"; expected up to 64 letters, digits, ".", "_" and "-"; rename it',
        )
