"""Errors of model files."""

from pathlib import Path

from mistify.errors import ErrorCode, MistifyError, Problem

EXPECTED = "a Keras model made of Keras's own layers, without Python code"
SAVE = "save it with model.save(FILE)"


def invalid(path: Path | str, actual: str, expected: str = EXPECTED, fix: str = SAVE) -> MistifyError:
    """Return an INVALID_MODEL error with one problem of a file.

    Args:
        actual: The contents that were found.
        expected: The contents that were expected.
        fix: Advice for the owner of the file.
    """
    problem = Problem(str(path), actual, expected, fix)
    return MistifyError(ErrorCode.INVALID_MODEL, f"{path} cannot be ported", [problem])


def too_large(path: Path | str, actual: str, limit: float) -> MistifyError:
    """Return an INVALID_MODEL error for a part that exceeds a limit.

    Args:
        actual: A description of the part that is too large, with its size.
        limit: The maximum size.
    """
    return invalid(path, actual, f"at most {limit:,.0f}", "save a smaller model")
