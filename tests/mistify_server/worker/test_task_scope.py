"""The part of a network, of its data and of their settings that a task needs."""

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.structure.signature import signature_of
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify.config.task import TaskConfig
from mistify.errors import ErrorCode, MistifyError
from mistify.scenarios.space import TaskSpace
from mistify_server.worker.task_scope import ClassScope, PropertyScope, TaskScope, scope_of

layers = keras.layers


@pytest.fixture
def model() -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), name="x")
    return keras.Model(inputs, layers.Dense(5, "softmax", name="kind")(inputs))


def data(**changes: Any) -> Dataset:
    inputs = np.arange(40, dtype=np.float32).reshape(10, 4) / 40
    return Dataset({"x": inputs}, {"kind": np.arange(10) % 5}, **changes)


def scope(model: keras.Model, task: TaskConfig, train: Dataset, **settings: Any) -> TaskScope:
    return scope_of(task, signature_of(model), DataSettings.model_validate(settings), train)


def test_without_a_task_everything_stays(model: keras.Model) -> None:
    whole, train, settings = (
        scope_of(None, signature_of(model), DataSettings(), data()),
        data(),
        DataSettings(),
    )
    assert whole.network(model) is model
    assert whole.data(train, "train") is train
    assert whole.settings(settings) is settings


def test_classes_are_rows_of_the_head_and_examples_with_their_names(model: keras.Model) -> None:
    own = scope(model, TaskConfig(classes=("4", "1")), data(), labels=["a", "b", "c", "d", "e"])
    assert own == ClassScope("kind", (1, 4), ("b", "e"))
    network = own.network(model)
    inputs = data().inputs["x"]
    expected = np.asarray(model(inputs))[:, [1, 4]]
    np.testing.assert_allclose(network(inputs), expected / expected.sum(axis=1, keepdims=True), atol=1e-6)
    assert own.network(network) is network
    subset = own.data(data(), "train")
    assert subset.targets["kind"].tolist() == [0, 1, 0, 1]
    assert (40 * subset.inputs["x"][:, 0]).round().tolist() == [4, 16, 24, 36]
    assert subset.classes == {"kind": ("b", "e")}


@pytest.mark.parametrize(
    ("classes", "labels", "names"),
    [
        ({}, None, ("0", "3")),
        ({"kind": ("v", "w", "x", "y", "z")}, None, ("v", "y")),
        ({}, ["1", "2", "3", "4", "0"], ("1", "4")),
    ],
)
def test_names_come_from_the_config_the_data_or_are_numbers(
    model: keras.Model, classes: dict[str, tuple[str, ...]], labels: list[str] | None, names: tuple[str, ...]
) -> None:
    own = scope(model, TaskConfig(classes=names), data(classes=classes), labels=labels)
    assert own == ClassScope("kind", (0, 3), names)
    assert own.data(data(classes=classes), "test").classes == {"kind": names}


def test_settings_keep_the_weights_of_the_classes(model: keras.Model) -> None:
    own = scope(model, TaskConfig(classes=("0", "3")), data())
    settings = DataSettings.model_validate({"class_weights": [1, 2, 3, 4, 5], "labels": ["a"]})
    assert own.settings(settings) == DataSettings(class_weights=(1.0, 4.0))
    assert own.settings(DataSettings(class_weights="balanced")).class_weights == "balanced"


def test_a_class_without_an_example_is_reported(model: keras.Model) -> None:
    own = scope(model, TaskConfig(classes=("0", "3")), data())
    with pytest.raises(MistifyError) as caught:
        own.data(data().subset(np.array([0, 1, 5])), "validation")
    assert caught.value.code is ErrorCode.INVALID_DATASET
    (problem,) = caught.value.problems
    assert str(problem).startswith(
        "dataset.validation: got none of 3; expected examples of each of the classes"
    )


def test_a_class_that_the_model_lacks_is_reported(model: keras.Model) -> None:
    with pytest.raises(MistifyError, match="the model lacks a class of the task classes 0, 5"):
        scope(model, TaskConfig(classes=("0", "5")), data())


SPACE = TaskSpace.read('{"properties": {"which": ["1", "2"]}, "tasks": {"one": ["1"], "two": ["2"]}}')


def test_properties_are_examples_with_an_answer(model: keras.Model) -> None:
    answers = np.full((10, 2), -1, np.int8)
    answers[[2, 5], 1] = 1, 0
    train = data(answers=answers, space=SPACE)
    own = scope(model, TaskConfig(properties=("2",)), train)
    assert own.network(model) is model
    assert own.data(train, "train").targets["kind"].tolist() == [1, 0]
    with pytest.raises(MistifyError) as caught:
        scope(model, TaskConfig(properties=("1",)), train).data(train, "test")
    assert str(caught.value.problems[0]).startswith("dataset.test: got no answer; expected at least one")


def yes_or_no() -> keras.Model:
    inputs = keras.Input((4,), name="x")
    return keras.Model(inputs, layers.Dense(1, name="kind")(inputs))


def test_a_network_answers_what_the_data_do_not() -> None:
    keras.utils.set_random_seed(1)
    reference = yes_or_no()
    answers = np.tile(np.array([[1, -1], [0, -1]], np.int8), (5, 1))
    train = data(answers=answers, space=SPACE)
    train = replace(train, targets={"kind": answers[:, 0].astype(np.int64)})
    own = scope(reference, TaskConfig(properties=("2",)), train)
    assert isinstance(own, PropertyScope)
    assert not own.is_answered(train)
    assert scope(reference, TaskConfig(properties=("1",)), train).is_answered(train, train)
    unanswered = own.unanswered(reference, train, train)
    shifted = replace(train, inputs={"x": train.inputs["x"] - 0.5})
    answered = unanswered.data(shifted, "test")
    expected = np.asarray(reference(shifted.inputs["x"]))[:, 0] >= 0
    assert 0 < expected.sum() < len(expected)
    assert answered.targets["kind"].reshape(-1).tolist() == expected.astype(int).tolist()
    assert unanswered.note.startswith('never trained: "2"; the nearest trained tasks are 1; the data have no')
    settings = DataSettings(metric=Metric.BALANCED_ACCURACY, metrics={"kind": Metric.ACCURACY})
    assert unanswered.settings(settings) == DataSettings(
        metric=Metric.BALANCED_AGREEMENT, metrics={"kind": Metric.AGREEMENT}
    )


def test_a_trained_task_may_lack_answers_to_measure_by() -> None:
    answers = np.zeros((10, 2), np.int8)
    unknown = np.full((10, 2), -1, np.int8)
    train = replace(data(answers=answers, space=SPACE), targets={"kind": np.zeros(10, np.int64)})
    own = scope(yes_or_no(), TaskConfig(properties=("2",)), train)
    assert isinstance(own, PropertyScope)
    assert own.unanswered(yes_or_no(), train, data(answers=unknown, space=SPACE)).note.startswith(
        "the data have no answers to the task"
    )


def test_a_task_that_is_held_out_of_training_is_measured_by_the_test_data() -> None:
    train = data(answers=np.tile(np.array([[1, -1], [0, -1]], np.int8), (5, 1)), space=SPACE)
    train = replace(train, targets={"kind": np.arange(10) % 2})
    test = data(answers=np.tile(np.array([[1, 0], [0, -1]], np.int8), (5, 1)), space=SPACE)
    own = scope(yes_or_no(), TaskConfig(properties=("2",)), train)
    assert isinstance(own, PropertyScope)
    held_out = own.unanswered(yes_or_no(), train, test)
    assert held_out.data(test, "test").targets["kind"].tolist() == [0] * 5
    assert len(held_out.data(train, "validation")) == 10
    some = own.unanswered(yes_or_no(), train, test, most=4)
    assert len(some.data(train, "validation")) == 4
    assert some.data(train, "validation") is some.data(train, "validation")
    assert len(some.data(test, "test")) == 5  # the data answer
    settings = DataSettings(metric=Metric.BALANCED_ACCURACY)
    assert held_out.settings(settings) is settings
    assert held_out.note == 'never trained: "2"; the nearest trained tasks are 1'


def test_properties_need_data_that_answer_tasks(model: keras.Model) -> None:
    with pytest.raises(MistifyError, match="the data have no answers to the task 2"):
        scope(model, TaskConfig(properties=("2",)), data())
