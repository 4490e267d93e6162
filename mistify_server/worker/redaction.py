"""Removal of the server's directories from error messages, because callers see these."""

import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mistify_server.tasks.recipe import absolute_paths
from mistify_server.tasks.results import Inspection, Result, TaskFailure
from mistify_server.tasks.tasks import Task


def redacted(result: Result, task: Task, directories: Iterable[Path]) -> Result:
    """Return a result in which problems and reasons contain file names without directories.

    Args:
        task: A task with paths of models and data, on the server or from callers.
        directories: Additional directories of the server.
    """
    if not isinstance(result, TaskFailure | Inspection):
        return result
    of_python = (Path(sys.prefix), Path(tempfile.gettempdir()))
    around = {*directories, *of_python, *(Path(name).parent for name in absolute_paths(task.model_dump()))}
    names = sorted({f"{directory}/" for directory in around if directory != directory.parent}, key=len)

    def plain(text: str) -> str:
        for name in reversed(names):  # innermost first
            text = text.replace(name, "")
        return text

    problems = tuple(
        replace(problem, place=plain(problem.place), value=plain(problem.value))
        for problem in result.problems
    )
    changes: dict[str, Any] = {"problems": problems}
    if isinstance(result, TaskFailure):
        changes["message"] = plain(result.message)
    return result.model_copy(update=changes)
