"""Targets that answer one or many tasks of a space for each example."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from executors.data.dataset import UNANSWERED, Dataset
from executors.data.errors import invalid
from executors.readers.formats import TASK, Arrays, Request, Y, first_of
from mistify.errors import Problem
from mistify.scenarios.space import TaskSpace


def with_answers_of_tasks(arrays: Arrays, request: Request, source: str) -> Arrays:
    """Return arrays with answers to all tasks in place of targets that answer one task each.

    Args:
        arrays: The arrays of a file; unchanged unless one says which task each target answers.
        source: Name of the data in errors.

    Raises:
        MistifyError: INVALID_DATASET: an unknown task or an invalid answer.
    """
    if request.space is None or not request.labelled or TASK not in arrays:
        return arrays
    name = first_of(list(arrays), request.signature.outputs[0].name, Y)
    if name is None:
        return arrays
    tasks, targets, count = arrays[TASK], arrays[name], len(request.space.tasks)
    if tasks.shape != targets.shape:
        shapes = f"{TASK} of shape {tasks.shape} and {name} of shape {targets.shape}"
        raise invalid(Problem(source, shapes, "a task for each target", "check the arrays"))
    for wrong, array, expected in (
        (~np.isin(tasks, np.arange(count)), TASK, f"the number of a task, from 0 to {count - 1}"),
        (~np.isin(targets, (UNANSWERED, 0, 1)), name, "0 or 1"),
    ):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            actual = f"{array}[{row}] = {arrays[array][row]}"
            raise invalid(Problem(source, actual, expected, "correct the example"))
    answers = np.full((len(tasks), count), UNANSWERED, np.int64)
    answers[np.arange(len(tasks)), tasks.astype(np.int64)] = targets
    return {**{key: array for key, array in arrays.items() if key != TASK}, name: answers}


def answering(data: Dataset, space: TaskSpace) -> Dataset:
    """Return data whose targets are answers to all tasks as data of these tasks.

    The target of each example is its answer to a random one of the tasks that it answers, so that code
    without support for tasks sees a binary label. Examples without answers have an ignored target.
    """
    ((output, target),) = data.targets.items()
    answers = target.reshape(len(target), -1).astype(np.int8)
    return replace(data, targets={output: _drawn(answers)}, answers=answers, space=space)


def _drawn(answers: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """Return one answer of each example, always the same [examples]."""
    draws = np.random.default_rng(0).random(answers.shape)
    draws[answers == UNANSWERED] = -1
    drawn: npt.NDArray[np.int64] = answers[np.arange(len(answers)), draws.argmax(axis=1)].astype(np.int64)
    return drawn
