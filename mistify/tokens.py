"""Files with an access token."""

import os
import stat
from pathlib import Path

from mistify.errors import MistifyError, Problem, invalid_config

#: Permissions that users other than the owner and its group must not have.
_OTHERS = stat.S_IRWXO


def read_token(path: Path | None) -> str | None:
    """Return the token in a file that only its owner, and perhaps a group, can read; None without a file.

    Raises:
        MistifyError: INVALID_CONFIG, it cannot be read, contains no token, or is accessible to other users.
    """
    if path is None:
        return None
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            token = file.read().strip()
    except (OSError, ValueError) as error:  # not UTF-8, or a name with a null character
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _invalid(path, reason, "a file with a token", "check the path") from error
    if mode & _OTHERS:
        expected = "a file that other users cannot read"
        raise _invalid(path, f"mode {mode:04o}", expected, f"chmod 600 {path}")
    if not token:
        raise _invalid(path, "an empty file", "a file with a token", "write one: openssl rand -hex 32")
    return token


def _invalid(path: Path, value: str, expected: str, fix: str) -> MistifyError:
    return invalid_config([Problem(str(path), value, expected, fix)], "the token")
