"""Reasons for not loading a file, in one line."""

from pathlib import Path

from executors.inspection.errors import invalid
from mistify.errors import MistifyError


def unreadable(path: Path | str, error: Exception) -> MistifyError:
    """Return an INVALID_MODEL error for a file that Keras cannot load."""
    # Keras wraps the cause in pages of configuration, and advises to trust the file.
    cause = str(error).rpartition("Exception encountered: ")[2].strip() or type(error).__name__
    actual = cause.splitlines()[0].partition(". ")[0].rstrip(".")
    return invalid(path, f"a file that Keras cannot load ({actual[:200]})")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its class if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
