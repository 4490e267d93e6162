"""Tasks that are drawn for training, with examples, and scored on validation data."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.algorithms.nnfactory.answered_tasks import AnsweredTasks
from executors.structure.signature import signature_of
from mistify.config.data.dataset import DataSettings
from mistify.scenarios.space import TaskSpace
from tests.executors.algorithms.nnfactory.conftest import SPACE, bright_places, residual

LISTED = list(SPACE.listed)


def tasks_of(data, extra=0.5):
    return AnsweredTasks(data, signature_of(residual()), DataSettings(), extra)


@pytest.fixture(scope="module")
def data():
    return bright_places(300, 0)


@pytest.fixture(scope="module")
def drawn(data):
    return tasks_of(data).draw(40_000, np.random.default_rng(0))


def columns_of(drawn):
    encoded = np.stack([SPACE.encode(task) for task in LISTED])
    return (drawn.tasks[:, None] == encoded).all(axis=2).argmax(axis=1)


def test_the_targets_are_the_answers_of_the_examples_as_often_yes_as_no(data, drawn):
    answers = data.answers[drawn.rows, columns_of(drawn)]
    assert (answers == drawn.targets.ravel()).all()
    assert 0.45 < answers.mean() < 0.55
    assert drawn.targets.shape == (40_000, 1)


def test_extra_tasks_have_their_share_and_a_task_without_answers_none(drawn):
    columns = columns_of(drawn)
    assert 0.45 < np.isin(columns, [6, 7]).mean() < 0.55
    assert set(columns) == set(range(8))


def test_a_task_without_answers_is_not_among_the_trained_ones(data):
    space = tasks_of(data).space
    assert [space.is_trained(task) for task in LISTED] == [True] * 8 + [False]
    assert (space.axes, space.names) == (SPACE.axes, SPACE.names)


def test_many_noes_answer_yes_to_a_similar_task(data, drawn):
    """As "any of top" does where "all of top" does not."""
    column = LISTED.index(SPACE.parse("all,top"))
    rows = drawn.rows[(columns_of(drawn) == column) & (drawn.targets.ravel() == 0)]
    close = data.answers[:, LISTED.index(SPACE.parse("any,top"))] == 1
    among_all = close[data.answers[:, column] == 0].mean()
    assert close[rows].mean() > among_all + 0.04


def test_named_tasks_are_scored_with_as_many_examples_of_each_answer(data):
    tasks = tasks_of(data)
    scored = list(tasks.scored(bright_places(100, 1)))
    assert [task.name for task in scored] == [str(task) for task in LISTED[:6]]
    for task in scored:
        assert task.encoded.tolist() == SPACE.encode(SPACE.parse(task.name)).tolist()
        assert len(task.data) <= 100


def test_tasks_without_names_are_scored_where_there_are_no_others(data):
    answers = np.where(np.arange(len(LISTED)) < 6, -1, data.answers).astype(np.int8)
    unnamed = replace(data, answers=answers)
    assert [task.name for task in tasks_of(unnamed).scored(unnamed)] == [str(task) for task in LISTED[6:8]]


def test_the_score_is_the_mean_over_the_answers(data):
    tasks = tasks_of(data)
    task = next(tasks.scored(data))
    right = task.data.targets["answer"].ravel()
    assert tasks.score(np.where(right == 1, 0.9, 0.2)[:, None], task) == 1
    assert tasks.score(np.full((len(right), 1), 0.9), task) == 0.5
    half = np.where((right == 1) & (np.arange(len(right)) % 2 == 0), 0.9, 0.2)[:, None]
    yes = (right == 1) & (np.arange(len(right)) % 2 == 0)
    assert tasks.score(half, task) == pytest.approx((yes.sum() / (right == 1).sum() + 1) / 2)


def test_a_network_that_chooses_among_two_classes_is_scored_as_well(data):
    image = keras.Input((8, 8, 1), name="image")
    model = keras.Model(image, keras.layers.Dense(2, "softmax", name="answer")(keras.layers.Flatten()(image)))
    flat = data.__class__(
        data.inputs, {"answer": data.targets["answer"].ravel()}, answers=data.answers, space=SPACE
    )
    tasks = AnsweredTasks(flat, signature_of(model), DataSettings(), 0.5)
    task = next(tasks.scored(flat))
    right = task.data.targets["answer"]
    assert right.ndim == 1
    assert tasks.score(np.eye(2, dtype=np.float32)[right], task) == 1


def test_data_without_answers_are_refused(data):
    plain = data.__class__(data.inputs, data.targets)
    with pytest.raises(ValueError, match="no answers"):
        tasks_of(plain)


def test_tasks_without_a_common_property_are_drawn_as_well(data):
    text = """{
        "properties": {"where": ["left", "right"], "what": ["dark", "bright"]},
        "tasks": {"a": ["left", "dark"], "b": ["right", "bright"]}
    }"""
    apart = replace(data, answers=data.answers[:, :2], space=TaskSpace.read(text))
    drawn = tasks_of(apart).draw(200, np.random.default_rng(0))
    for row, encoded, target in zip(drawn.rows, drawn.tasks, drawn.targets.ravel(), strict=True):
        assert apart.answers[row, int(encoded[1])] == target
