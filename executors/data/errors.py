"""Errors in data, with the file and the place in it."""

from mistify.errors import ErrorCode, MistifyError, Problem


class SchemaSourceError(MistifyError):
    """Data cannot be read because the data that define their classes and columns cannot be used."""


def invalid(*problems: Problem) -> MistifyError:
    """Return the error for data that cannot be used."""
    return MistifyError(ErrorCode.INVALID_DATASET, f"{problems[0].place} cannot be used", problems)
