"""The tasks that data answer."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from executors.data.dataset import Dataset
from mistify.errors import Problem


def unusable_answers(train: Dataset, validation: Dataset, place: str) -> Iterator[Problem]:
    """Yield a problem for each task that cannot be learned, or else one if none can be learned or scored.

    A task is learned from examples with the answer yes, and examples with the answer no. Tasks without any
    answers are not trained, which is no problem.

    Args:
        train: Training data.
        validation: Validation data.
        place: Place of the training data in problems.
    """
    if train.answers is None or train.space is None:
        return
    yes, no = _counts(train)
    for task, own_yes, own_no in zip(train.space.tasks, yes, no, strict=True):
        if (own_yes == 0) != (own_no == 0):
            actual = f"the task {task} with {own_yes:,} yes and {own_no:,} no"
            fix = "add some, or leave all its answers unknown (-1)"
            yield Problem(place, actual, "examples of both", fix)
    if not (yes + no).any():
        yield Problem(place, "no answer that is known", "answers to at least one task", "add some")
    elif not np.all([yes, no, *_counts(validation)], axis=0).any():
        expected = "a yes and a no to at least one trained task, by which networks are compared"
        fix = 'hold out more examples, or name a file, as "validation"'
        yield Problem("dataset.validation", "answers to none of the tasks", expected, fix)


def _counts(data: Dataset) -> list[npt.NDArray[np.int64]]:
    """Return the numbers of examples with the answers yes and no to each task [2, tasks]."""
    answers = np.empty((0, 0), np.int8) if data.answers is None else data.answers
    return [np.count_nonzero(answers == answer, axis=0) for answer in (1, 0)]
