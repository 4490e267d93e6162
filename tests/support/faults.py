"""Faults that tests inject in place of a function."""

from mistify.errors import ErrorCode, MistifyError


def raise_no_space(*_: object) -> None:
    """Fail as on a full disk."""
    raise MistifyError(ErrorCode.UNAVAILABLE, "no space left")
