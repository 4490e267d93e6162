"""Rejection of configs: all their problems in one error."""

from collections.abc import Sequence

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config

_CODES = {"model": ErrorCode.INVALID_MODEL, "dataset": ErrorCode.INVALID_DATASET}


def reject(problems: Sequence[Problem]) -> None:
    """Raise an error with all problems, if there are any.

    Raises:
        MistifyError: INVALID_MODEL or INVALID_DATASET if all problems are of that kind, else INVALID_CONFIG.
    """
    if not problems:
        return
    codes = {_code_of(problem) for problem in problems}
    error = invalid_config(problems)
    raise MistifyError(codes.pop(), error.message, problems) if len(codes) == 1 else error


def _code_of(problem: Problem) -> ErrorCode:
    _, _, subject = problem.place.partition("].")
    return _CODES.get(subject.partition(".")[0], ErrorCode.INVALID_CONFIG)
