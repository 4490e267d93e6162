"""Test data are read as the training data determine."""

from dataclasses import replace

import numpy as np
import pytest

from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output, Signature
from tests.executors.readers.arrays import FIGURES, IMAGE, ONE, OPEN, SCORES, X, Y
from tests.executors.readers.files import FORMATS, problem_of, write_images


def test_test_data_may_lack_classes(saved):
    source = saved(x=X, y=np.zeros(6, int))
    assert len(load_dataset(source, ONE, train=source)) == 6


@pytest.mark.parametrize("train", FORMATS)
@pytest.mark.parametrize("test", FORMATS)
def test_integers_are_regression_targets_if_the_training_data_has_fractions(labelled, train, test):
    known = labelled(f"train.{train}", [2.5, 4.0])
    target = load_dataset(labelled(f"test.{test}", [1, 0, 3]), OPEN, known).targets["price"]
    assert (target.tolist(), target.dtype) == ([1, 0, 3], np.float32)


@pytest.mark.parametrize("train", FORMATS)
@pytest.mark.parametrize("test", FORMATS)
def test_classes_in_the_test_data_may_have_any_numeric_type(labelled, train, test):
    known = labelled(f"train.{train}", [1, 0])
    target = load_dataset(labelled(f"test.{test}", [1.0, 0.0]), OPEN, known).targets["price"]
    assert (target.tolist(), target.dtype) == ([1, 0], np.int64)
    reported = problem_of(labelled(f"test.{test}", [1.0, 0.5]), OPEN, train=known)
    assert "0.5" in reported
    assert "expected whole numbers, as in the training data" in reported


def test_problems_of_the_training_data_are_not_reported_for_the_test_data(saved, tmp_path, labelled):
    test = labelled("test.npz", [0, 2])
    sig = Signature((FIGURES,), (SCORES,))
    assert len(load_dataset(test, sig, labelled("train.npz", [0.5, 2]))) == 2
    (tmp_path / "train.npz").write_bytes(b"noise")
    assert len(load_dataset(test, sig, str(tmp_path / "train.npz"))) == 2
    assert len(load_dataset(test, sig, saved(labels=Y))) == 2


@pytest.mark.parametrize("train", ["train.npz", "builtin:digits-train"])
def test_class_names_in_test_data_are_refused_if_the_training_data_has_none(labelled, tmp_path, train):
    known = labelled(train, [0, 1, 2]) if train == "train.npz" else train
    sig = Signature((FIGURES,), (SCORES,))
    names = ["cat", "dog", "eel"]
    assert "row 2: scores = 'cat'; expected numbers" in problem_of(labelled("t.csv", names), sig, train=known)
    reported = problem_of(labelled("t.tfrecord", names), sig, train=known)
    assert (
        "record 0: y is 'cat'; expected numbers of classes, because the training data have no class names"
        in reported
    )
    image = Signature((Input("image", (6, 5, 3), "float32"),), (SCORES,))
    pets = write_images(tmp_path / "pets", {f"{name}/1.png": np.zeros((6, 5, 3), np.uint8) for name in names})
    reported = problem_of(pets, image, train=known)
    assert (
        "a class cat; expected numbers of classes, because the training data have no class names" in reported
    )


LOGITS = Output("scores", (3,), Activation.NONE)


@pytest.mark.parametrize("kind", [np.float32, np.int64])
@pytest.mark.parametrize("shape", [(3,), (7, 3)])
def test_one_hot_training_data_of_logits_are_refused_with_the_way_to_classes(saved, kind, shape):
    classes = np.arange(6 * np.prod(shape[:-1], dtype=int)).reshape(6, *shape[:-1]) % 3
    sig = Signature((IMAGE,), (replace(LOGITS, shape=shape),))
    reported = problem_of(saved(x=X, y=np.eye(3, dtype=kind)[classes]), sig)
    assert "one-hot scores; expected integer classes [n" in reported
    assert "np.argmax(targets, axis=-1)" in reported
    assert len(load_dataset(saved(x=X, y=classes), sig)) == 6


def test_each_example_of_the_test_data_may_have_one_of_several_independent_answers(tmp_path):
    answers = {"train": np.tile([[1, 0, 1], [0, 1, 0]], (3, 1)), "test": np.eye(3, dtype=int)[Y]}
    for part, y in answers.items():
        np.savez(tmp_path / f"{part}.npz", x=X, y=y)
    sig = Signature((IMAGE,), (LOGITS,))
    test = load_dataset(str(tmp_path / "test.npz"), sig, str(tmp_path / "train.npz"))
    np.testing.assert_array_equal(test.targets["scores"], answers["test"])
