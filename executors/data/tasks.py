"""The tasks that data answer."""

from collections.abc import Iterator

import numpy as np

from executors.data.dataset import Dataset
from mistify.errors import Problem


def one_sided_tasks(train: Dataset, place: str) -> Iterator[Problem]:
    """Yield a problem for each task with only yes or only no among its answers in the training data.

    Tasks without answers are not trained, which is no problem.

    Args:
        train: Training data with answers.
        place: Place of the data in problems.
    """
    if train.answers is None or train.space is None:
        return
    for task, answers in zip(train.space.tasks, train.answers.T, strict=True):
        yes, no = (int(np.count_nonzero(answers == answer)) for answer in (1, 0))
        if (yes == 0) != (no == 0):
            actual = f"the task {task} with {yes:,} yes and {no:,} no"
            yield Problem(
                place, actual, "examples of both", "add some, or leave all its answers unknown (-1)"
            )
