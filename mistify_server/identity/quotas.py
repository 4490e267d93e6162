"""Limits of tokens, and the errors of callers who would exceed them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.parsing.quantities import format_bytes, parse_size
from mistify.parsing.validation import InvalidValue
from mistify.quotas import Quota
from mistify.wording import counted
from mistify_server.identity.tokens import TokenStore

#: Largest limit.
_MOST: Final = 2**53

#: What commands call the absence of a limit.
_NONE: Final = "none"


def check_unfinished(caller: str, unfinished: int, most: int | None) -> None:
    """Raise an error if a caller may have no further unfinished job.

    Args:
        caller: The name of the token.
        unfinished: Number of its unfinished jobs.
        most: The limit; None for none.

    Raises:
        MistifyError: QUOTA_EXCEEDED.
    """
    if most is not None and unfinished >= most:
        raise MistifyError(
            ErrorCode.QUOTA_EXCEEDED,
            f'the token "{caller}" has {counted(unfinished, "unfinished job")}, and may have {most:,}; wait '
            f"until one has ended, or cancel one: `mistify jobs --search {caller}` lists them; or ask the "
            "server's administrator for a higher limit",
        )


def too_large_uploads(caller: str, kept: int, new: int, most: int) -> MistifyError:
    """Return the error for uploads that exceed a caller's limit.

    Args:
        caller: The name of the token.
        kept: Bytes of uploads that the server keeps for it.
        new: Bytes to be added.
        most: The limit in bytes.
    """
    used, limit, needed = (format_bytes(size, 3) for size in (kept, most, new))
    return MistifyError(
        ErrorCode.QUOTA_EXCEEDED,
        f'the uploads of the token "{caller}" take {used}, and may take {limit}; these need '
        f"{needed} more; remove jobs whose models and data are no longer needed: uploads are removed a "
        "day after their last use; or ask the server's administrator for a higher limit",
    )


def check_limits(limits: Quota) -> None:
    """Raise an error if a limit is not a positive number that the store can hold.

    Raises:
        MistifyError: INVALID_CONFIG.
    """
    problems = [
        Problem(f"max-{name}", f"{limit:,}", f"1 to {_MOST:,}", "leave it out for no limit")
        for name, limit in asdict(limits).items()
        if limit is not None and not 1 <= limit <= _MOST
    ]
    if problems:
        raise invalid_config(problems, "the token")


def change_limits(tokens: TokenStore, name: str, changed: Mapping[str, int | None]) -> Quota:
    """Change limits of a token, and return all of them.

    Args:
        changed: Field of `Quota` -> its new value.

    Raises:
        MistifyError: INVALID_CONFIG, a limit cannot be used; NOT_FOUND, there is no such token.
    """
    check_limits(Quota(**changed))
    return tokens.set_limits(name, changed)


def size_limit(text: str) -> int:
    """Return a size such as 5GB in bytes.

    Raises:
        ValueError: It is not a size.
    """
    try:
        return int(parse_size(text))
    except InvalidValue as error:
        raise ValueError(f"got {text[:200]!r}; expected {error.expected}") from error


def limits_of(
    max_uploads: str | None, max_jobs: str | None, max_workers: str | None
) -> dict[str, int | None]:
    """Return limits that a command gives as texts, by field of `Quota`: numbers, a size, or `none`.

    Raises:
        MistifyError: INVALID_CONFIG with all that are none of these.
    """
    limits: dict[str, int | None] = {}
    problems = []
    for name, text in (("uploads", max_uploads), ("jobs", max_jobs), ("workers", max_workers)):
        expected = "a size such as 5GB" if name == "uploads" else "a number"
        try:
            if text is not None:
                read = size_limit if name == "uploads" else int
                limits[name] = None if text == _NONE else read(text)
        except ValueError:
            problems.append(Problem(f"--max-{name}", f'"{text}"', f"{expected}, or {_NONE}", "change it"))
    if problems:
        raise invalid_config(problems, "the token")
    return limits
