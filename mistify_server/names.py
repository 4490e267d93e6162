"""Names that people give to models, groups, tokens and jobs."""

import re
from typing import Final

from mistify.errors import ErrorCode, MistifyError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

#: Maximum length of a job's name.
_MOST_JOB_NAME: Final = 100


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


def check_job_name(name: str) -> None:
    """Raise an error if a name for people is too long, or has control characters or spaces around it.

    Raises:
        MistifyError: INVALID_CONFIG.
    """
    if len(name) > _MOST_JOB_NAME or not name.isprintable() or name != name.strip():
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"got the job name {name[:200]!r}; expected up to {_MOST_JOB_NAME} printable characters on one "
            "line, without spaces around them; rename it",
        )
