"""The tasks in configs, checked against the space of their data."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from mistify.config.porting import PortingConfig
from mistify.config.reading import CollectiveBatch
from mistify.config.task import TaskConfig
from mistify.errors import MistifyError, Problem
from mistify.parsing.jsonc import JsonError
from mistify.scenarios.space import WHOLE, TaskSpace
from mistify_server.tasks.problems import ProblemCollector


def with_tasks(batch: CollectiveBatch, tasks: str | None, problems: ProblemCollector) -> CollectiveBatch:
    """Return a batch with its tasks in canonical form, so that equal tasks are written alike.

    Args:
        tasks: Path of the file with the space; None for data without a space.
        problems: Collects mistakes in the file and in the tasks.
    """
    for index, config in zip(batch.indices, batch.configs, strict=True):
        if "dataset" not in config.model_fields_set:  # it is that of a job, and was not checked before
            with_data = config.model_copy(update={"dataset": batch.dataset})
            problems.check(f"[{index}].task", with_data.check_answers)
    if tasks is None:
        return batch
    place = f"[{batch.indices[0]}].dataset.tasks"
    space = problems.load(place, partial(_read, Path(tasks), place))
    if space is None:
        return batch
    return replace(batch, configs=tuple(_canonical(batch, space, problems)))


def _read(path: Path, place: str) -> TaskSpace:
    """Read a space; its problems get the place of the file in the config."""
    try:
        return TaskSpace.read(path)
    except MistifyError as error:
        no_json = isinstance(error.__cause__, JsonError)
        moved = (_moved(problem, place, in_text=no_json) for problem in error.problems)
        raise MistifyError(error.code, error.message, moved) from error


def _moved(problem: Problem, place: str, *, in_text: bool) -> Problem:
    """Return a problem with the place of the file in front of its own.

    Args:
        in_text: Whether its place is a line and a column, and no JSON path.
    """
    if in_text:
        return replace(problem, place=place, value=f"{problem.value} ({problem.place})")
    return replace(problem, place=place if problem.place == WHOLE else f"{place}.{problem.place}")


def _canonical(
    batch: CollectiveBatch, space: TaskSpace, problems: ProblemCollector
) -> Iterator[PortingConfig]:
    for index, config in zip(batch.indices, batch.configs, strict=True):
        place = f"[{index}]"
        if config.task is not None and config.task.properties:
            properties = config.task.properties
            task = problems.load(place, partial(space.parse, properties, f"{place}.task"))
            canonical = config.task if task is None else TaskConfig(properties=task.properties)
            config = config.model_copy(update={"task": canonical})  # noqa: PLW2901 (the same, in other words)
        yield config
