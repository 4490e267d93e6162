"""Rejection of configs, with all their problems in one error."""

from collections.abc import Sequence

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config

_CODES = {"model": ErrorCode.INVALID_MODEL, "dataset": ErrorCode.INVALID_DATASET}


def reject_too_many(count: int, most: int, present: int = 0) -> None:
    """Raise an error if a job would have more goals than the server allows.

    Args:
        count: Number of submitted or added goals.
        most: The server's limit.
        present: Number of goals already in the job.

    Raises:
        MistifyError: INVALID_CONFIG.
    """
    if count + present <= most:
        return
    added = f", added to a job with {present:,}" if present else ""
    expected = f"at most {most:,} goals in a job"
    fix = "split them into several jobs, or start the server with a larger --max-goals (max_goals in a file)"
    raise invalid_config([Problem("the list", f"{count:,} goals{added}", expected, fix)])


def reject(problems: Sequence[Problem]) -> None:
    """Raise an error with all problems, if there are any.

    Raises:
        MistifyError: INVALID_MODEL or INVALID_DATASET if all problems are of that kind, otherwise
            INVALID_CONFIG.
    """
    if not problems:
        return
    codes = {_code_of(problem) for problem in problems}
    error = invalid_config(problems)
    raise MistifyError(codes.pop(), error.message, problems) if len(codes) == 1 else error


def _code_of(problem: Problem) -> ErrorCode:
    _, _, subject = problem.place.partition("].")
    return _CODES.get(subject.partition(".")[0], ErrorCode.INVALID_CONFIG)
