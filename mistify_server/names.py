"""Names that people give to models, groups, tokens and jobs, and ids that are made for what they start."""

import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from mistify.errors import ErrorCode, MistifyError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

#: Maximum length of a job's name.
_MOST_JOB_NAME: Final = 100

#: Maximum length of an idempotency key; databases limit what they index.
MOST_KEY: Final = 200

#: Maximum number of a job's tags, and maximum length of a tag.
MOST_TAGS: Final = 20
_MOST_TAG: Final = 64


def new_id(now: datetime) -> str:
    """Return an unused id that begins with a time."""
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


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


def check_idempotency_key(key: str) -> None:
    """Raise an error if an idempotency key is too long, or has control characters; empty for no key.

    Raises:
        MistifyError: INVALID_CONFIG.
    """
    if len(key) > MOST_KEY or not key.isprintable():
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"got the idempotency key {key[:40]!r} with {len(key):,} characters; expected up to {MOST_KEY} "
            "printable characters; use a random one, such as a UUID",
        )


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of a job, each once, ignoring case.

    Raises:
        MistifyError: INVALID_CONFIG, there are too many tags, or one is not a single printable word.
    """
    kept: dict[str, str] = {}
    for tag in tags:
        if not 0 < len(tag) <= _MOST_TAG or not tag.isprintable() or any(map(str.isspace, tag)):
            raise MistifyError(
                ErrorCode.INVALID_CONFIG,
                f"got the tag {tag[:200]!r}; expected a word of up to {_MOST_TAG} printable characters "
                "without spaces, such as team=vision; change it",
            )
        kept.setdefault(tag.casefold(), tag)
    if len(kept) > MOST_TAGS:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, f"got {len(kept):,} tags; expected up to {MOST_TAGS}; leave some out"
        )
    return tuple(kept.values())
