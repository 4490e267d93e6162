"""Data that answer many tasks: the examples and targets of one task, and those of some classes."""

from dataclasses import replace

import numpy as np
import pytest

from executors.data import Dataset, joined, unusable_answers
from mistify.parsing.validation import InvalidValue
from mistify.scenarios.space import TaskSpace

SPACE = TaskSpace.read(
    '{"properties": {"which": ["1", "2", "3"]}, "names": {"odd": ["1", "3"]},'
    ' "tasks": {"any-odd": ["odd"], "has-2": ["2"]}}'
)


def answered() -> Dataset:
    answers = np.array([[1, 0], [-1, 1], [0, -1], [-1, -1]], np.int8)
    return Dataset({"x": np.arange(4)}, {"y": np.array([1, 1, 0, -1])}, answers=answers, space=SPACE)


def test_the_examples_of_a_task_are_those_with_an_answer():
    data = answered().of_task(SPACE.parse("3, 1"))
    assert data.inputs["x"].tolist() == [0, 2]
    assert data.targets["y"].tolist() == [1, 0]
    assert data.targets["y"].dtype == np.int64
    assert data.answers.tolist() == [[1, 0], [0, -1]]
    assert answered().of_task(SPACE.parse("2")).inputs["x"].tolist() == [0, 1]


def test_answers_keep_the_shape_of_the_output():
    data = Dataset(
        {"x": np.arange(2)},
        {"y": np.array([[1], [0]])},
        answers=np.array([[0, 1], [1, 0]], np.int8),
        space=SPACE,
    )
    assert data.of_task(SPACE.parse("odd")).targets["y"].tolist() == [[0], [1]]


def test_a_task_that_nobody_answered_has_no_examples():
    assert len(answered().of_task(SPACE.parse("1, 2"))) == 0
    assert len(Dataset({"x": np.arange(2)}, {"y": np.arange(2)}).of_task(SPACE.parse("2"))) == 0


def test_subsets_and_joined_data_keep_their_answers():
    data = answered()
    assert data.subset(np.array([2, 0])).answers.tolist() == [[0, -1], [1, 0]]
    others = Dataset({"x": np.arange(1)}, {"y": np.array([-2])})
    assert joined(data, others).answers.tolist() == [[1, 0], [-1, 1], [0, -1], [-1, -1], [-1, -1]]
    assert joined(data, data).of_task(SPACE.parse("2")).inputs["x"].tolist() == [0, 1, 0, 1]


ANIMALS = Dataset(
    {"x": np.arange(6)}, {"y": np.array([0, 1, 2, 3, -1, 1])}, {"y": ("cat", "bird", "dog", "frog")}
)


@pytest.mark.parametrize("classes", [["frog", "bird"], ["bird", "frog"], ["1", "frog"]])
def test_some_classes_are_renumbered_in_their_old_order(classes):
    data = ANIMALS.of_classes(classes)
    assert data.inputs["x"].tolist() == [1, 3, 5]
    assert data.targets["y"].tolist() == [0, 1, 0]
    assert data.classes == {"y": ("bird", "frog")}


def test_classes_without_names_are_named_by_their_numbers():
    data = Dataset({"x": np.arange(4)}, {"y": np.array([4, 0, 2, 4])}).of_classes(["2", "4"])
    assert (data.inputs["x"].tolist(), data.targets["y"].tolist()) == ([0, 2, 3], [1, 0, 1])
    assert data.classes == {"y": ("2", "4")}


def test_of_classes_by_position_the_others_are_ignored():
    maps = np.array([[[0, 2], [1, 1]], [[0, 0], [0, -1]]])
    data = Dataset({"x": np.arange(2)}, {"y": maps}).of_classes(["1", "2"])
    assert data.inputs["x"].tolist() == [0]
    assert data.targets["y"].tolist() == [[[-1, 1], [0, 0]]]


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["bird", "fog"], 'got "fog"; expected one of bird, cat, dog, frog; did you mean "frog"?'),
        (["bird", "1"], 'got "1"; expected each class once; leave it out'),
        (["bird", "4"], 'got "4"; expected one of bird, cat, dog, frog; remove it or use a known name'),
    ],
)
def test_unknown_and_repeated_classes_are_refused(classes, message):
    with pytest.raises(InvalidValue, match="got") as caught:
        ANIMALS.of_classes(classes)
    assert str(caught.value) == message


def answering(*rows: list[int]) -> Dataset:
    """Data with answers to both tasks."""
    answers = np.array(rows, np.int8)
    return replace(answered(), inputs={"x": np.arange(len(rows))}, answers=answers)


def reported(train: Dataset, validation: Dataset) -> list[str]:
    return [str(problem) for problem in unusable_answers(train, validation, "dataset.train")]


def test_tasks_whose_training_answers_are_all_alike_are_reported():
    (problem,) = reported(answering([1, 0], [1, 1], [1, -1]), answering([1, 0], [1, 1]))
    assert problem.startswith(
        "dataset.train: got the task any-odd with 3 yes and 0 no; expected examples of both"
    )
    unanswered = answering([1, -1], [0, -1])
    assert reported(unanswered, unanswered) == []
    assert reported(ANIMALS, ANIMALS) == []


def test_data_without_a_single_answer_are_reported():
    nothing = answering([-1, -1], [-1, -1])
    (problem,) = reported(nothing, nothing)
    assert problem.startswith("dataset.train: got no answer that is known; expected answers to at least one")


@pytest.mark.parametrize("rows", [[[1, 1], [1, 1]], [[-1, 0], [-1, 1]], [[-1, -1]]])
def test_validation_data_have_to_tell_networks_apart(rows):
    """By a task that is trained, which only the first one is."""
    train = answering([1, -1], [0, -1])
    (problem,) = reported(train, answering(*rows))
    assert problem.startswith("dataset.validation: got answers to none of the tasks; expected a yes and a no")
    assert reported(train, answering([1, 0], [0, 0])) == []
