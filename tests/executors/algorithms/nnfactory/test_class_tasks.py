"""Tasks that are some of a classifier's classes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

from executors.algorithms.nnfactory.class_tasks import ClassTasks
from executors.data import Dataset
from executors.structure.signature import signature_of
from mistify.config.data.dataset import DataSettings

COLOURS = ("red", "green", "blue", "grey")


def classifier(activation="softmax"):
    image = keras.Input((3,), name="image")
    return keras.Model(image, keras.layers.Dense(4, activation, name="colour")(image))


def data_of(targets, names=COLOURS):
    targets = np.array(targets, np.int64)
    inputs = {"image": np.arange(3 * len(targets), dtype=np.float32).reshape(-1, 3)}
    return Dataset(inputs, {"colour": targets}, {"colour": names} if names else {})


def tasks_of(data, activation="softmax"):
    return ClassTasks(data, signature_of(classifier(activation)), DataSettings())


def test_an_example_has_a_task_with_its_class_and_others_of_any_number():
    data = data_of([0, 1, 2, 3, -1, 1])
    drawn = tasks_of(data).draw(3000, np.random.default_rng(0))
    assert set(drawn.rows) == {0, 1, 2, 3, 5}
    assert (drawn.targets == data.targets["colour"][drawn.rows]).all()
    assert (drawn.tasks[np.arange(3000), drawn.targets] == 1).all()
    sizes, counts = np.unique(drawn.tasks.sum(axis=1), return_counts=True)
    assert sizes.tolist() == [2, 3, 4]
    assert counts.min() > 900
    pairs = drawn.tasks[(drawn.tasks.sum(axis=1) == 2) & (drawn.targets == 0)]
    assert (pairs[:, 1:].mean(axis=0) > 0.25).all()


def test_only_the_sets_that_are_trained_are_drawn_and_scored():
    data = data_of([0, 1, 2, 3, -1] * 20)
    sets = [(0, 1), (1, 2)]
    tasks = ClassTasks(data, signature_of(classifier()), DataSettings(), sets)
    drawn = tasks.draw(900, np.random.default_rng(0))
    assert {tuple(np.flatnonzero(task)) for task in drawn.tasks} == {*sets}
    assert (drawn.tasks[np.arange(900), drawn.targets] == 1).all()
    assert 0.25 < np.mean(drawn.targets == 0) < 0.42
    shared = drawn.tasks[drawn.targets == 1]
    assert 0.4 < shared[:, 0].mean() < 0.6
    assert {each.name for each in tasks.scored(data)} == {"red, green", "green, blue"}
    assert {each.name for each in tasks.scored(data_of([1, 2] * 20))} == {"green, blue"}
    assert not [*tasks.scored(data_of([0, 2] * 20))]


@pytest.mark.parametrize("activation", ["softmax", None])
def test_the_loss_is_the_cross_entropy_among_the_classes_of_the_task(activation):
    logits = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    output = tf.nn.softmax(logits) if activation else tf.constant(logits)
    task = np.array([[1, 0, 1, 0], [1, 1, 1, 1]], np.float32)
    expected = [log_softmax(logits[0, [0, 2]])[1], log_softmax(logits[1])[3]]
    loss = tasks_of(data_of([0, 1]), activation).loss(output, tf.constant([2, 3]), tf.constant(task))
    assert float(loss) == pytest.approx(-np.mean(expected), rel=1e-4)


def test_other_classes_do_not_count_in_scores():
    tasks = tasks_of(data_of([0, 1, 2, 3] * 5))
    scored = list(tasks.scored(data_of([0, 1, 2, 3] * 5)))
    assert len({each.name for each in scored}) == len(scored) > 5
    task = next(each for each in scored if each.encoded.sum() == 2)
    first, second = np.flatnonzero(task.encoded)
    targets = task.data.targets["colour"]
    assert set(targets) == {first, second}
    assert task.name == f"{COLOURS[first]}, {COLOURS[second]}"
    output = np.full((len(targets), 4), 0.1, np.float32)
    output[:, [c for c in range(4) if c not in (first, second)]] = 0.9
    output[:, first] = 0.2
    assert tasks.score(output, task) == 0.5
    output[targets == second, second] = 0.3
    assert tasks.score(output, task) == 1


@pytest.mark.parametrize("third", [None, "b, c", "red", "red ", "all classes", "\x1b[31m", 65 * "d"])
def test_classes_whose_names_are_no_words_have_numbers(third):
    names = () if third is None else ("red", "green", third, "grey")
    space = tasks_of(data_of([0, 1], names=names)).space
    assert space.encode(space.parse(["3", "1"])).tolist() == [0, 1, 0, 1]


def test_classes_are_in_the_order_of_their_numbers():
    assert tasks_of(data_of([0, 1])).space.parse(["blue", "red"]).properties == ("red", "blue")


def test_classes_have_the_names_in_the_data():
    tasks = tasks_of(data_of([0, 1]))
    assert tasks.classes == tasks.space.axes["classes"] == COLOURS


def test_a_source_knows_all_answers_already():
    assert tasks_of(data_of([0, 1, 2])).answers.shape == (3, 0)


def test_a_network_without_classes_is_refused():
    image = keras.Input((3,), name="image")
    model = keras.Model(image, keras.layers.Dense(1, name="colour")(image))
    data = Dataset({"image": np.zeros((2, 3))}, {"colour": np.zeros((2, 1), np.float32)})
    with pytest.raises(ValueError, match="expected a classifier"):
        ClassTasks(data, signature_of(model), DataSettings())
