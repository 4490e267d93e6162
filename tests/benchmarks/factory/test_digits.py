"""Questions about four digits: none that is held out is trained, under whatever words."""

import numpy as np
import pytest

from benchmarks.factory.digits import (
    NAMED,
    Extent,
    extra_questions,
    four_digits,
    held_out,
    named_questions,
    with_names_as_values,
)

EXTENT = Extent(train=1200, validated=300, tested=8, extra=20)


@pytest.fixture(scope="module")
def data():
    return four_digits(0, EXTENT)


def corners(images):
    """The single digits of images [digits, 64]."""
    return images.reshape(-1, 2, 8, 2, 8).transpose(0, 1, 3, 2, 4).reshape(-1, 64)


def test_no_digit_is_in_two_data_sets(data):
    parts = data.train, data.validation, data.test
    train, validation, test = ({row.tobytes() for row in corners(part.inputs["image"])} for part in parts)
    assert [len(train) > 900, len(validation) > 90, len(test) > 500] == [True] * 3
    assert not train & test
    assert not train & validation
    assert not validation & test


@pytest.mark.parametrize("seed", range(4))
def test_of_each_digit_one_question_is_held_out_and_one_of_odd_with_its_twin_of_even(seed):
    questions = named_questions()
    held = held_out(questions, seed)
    subjects = [questions.names[index][1] for index in held]
    assert sorted(subjects[:10]) == sorted("0123456789")
    assert sorted(subjects[10:]) == ["even", "odd"]
    twins = questions.subset(held[10:]).answers(np.random.default_rng(0).integers(0, 10, (500, 4)))
    assert (twins[:, 0] == twins[:, 1]).all() or (twins[:, 0] != twins[:, 1]).all()


def test_no_question_that_is_trained_is_a_held_out_one_in_other_words():
    """By the answers to every image: equal ones, or the opposite ones."""
    questions = named_questions()
    held = held_out(questions, 0)
    extra = extra_questions(questions, held, 60, 0)
    digits = np.random.default_rng(1).integers(0, 10, (4000, 4))
    digits[:500] = np.arange(500)[:, None] % 10
    trained = np.concatenate(
        [questions.subset(np.setdiff1d(np.arange(NAMED), held)).answers(digits), extra.answers(digits)],
        axis=1,
    )
    for answers in questions.subset(held).answers(digits).T:
        agreeing = (trained == answers[:, None]).mean(axis=0)
        assert 0 < agreeing.min() <= agreeing.max() < 1


@pytest.mark.parametrize(("part", "images"), [("train", 1200), ("validation", 300)])
def test_training_and_validation_data_answer_all_questions_but_those_held_out(data, part, images):
    own = getattr(data, part)
    assert own.answers.shape == (images, 80)
    assert (own.answers[:, data.unseen] == -1).all()
    assert (np.delete(own.answers, data.unseen, axis=1) >= 0).all()


def test_the_answers_are_true():
    questions = named_questions()
    answers = dict(zip(questions.names, questions.answers(np.array([[3, 3, 8, 1]]))[0], strict=True))
    assert answers["has", "3"]
    assert answers["exactly:2", "3"]
    assert not answers["exactly:1", "3"]
    assert answers["exactly:3", "odd"]
    assert answers["exactly:1", "even"]
    assert not answers["exactly:4", "odd"]


def test_each_image_of_the_test_data_answers_its_question_half_of_them_yes(data):
    test = data.test
    assert ((test.answers >= 0).sum(axis=1) == 1).all()
    asked = (test.answers >= 0).argmax(axis=1)
    assert np.bincount(asked, minlength=80).tolist() == [8] * 60 + [0] * 20
    for column in range(60):
        assert (test.answers[asked == column, column] == 1).sum() == 4
    assert (test.targets["answer"].ravel() == test.answers[np.arange(len(test)), asked]).all()


def test_the_papers_names_are_values_of_their_own(data):
    own = with_names_as_values(data).train
    assert own.answers.shape == (1200, 60)
    odd, one = (own.space.encode(own.space.parse(["has", which])) for which in ("odd", "1"))
    assert odd.sum() == 2
    assert (odd * one).sum() == 1
