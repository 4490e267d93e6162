"""When training stops, what it keeps, and who is learned from."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mistify_client.tuning.examples import split
from mistify_client.tuning.fitting import Course, Pace, Score, fit, score_of
from mistify_client.tuning.progress import Progress, ProgressFile, Stage
from tests.mistify_client.tuning.devices import examples

PACE = Pace(learning_rate=0.02, patience=3, slowdowns=1, most_passes=60)


@pytest.fixture
def trainer(device):
    return device(0).trainer()


@pytest.fixture
def halves():
    return split(examples(5, 200), 0.2, 8)


def trained(trainer, halves, pace=PACE, course=None, teacher=None):
    scores = []
    course = course or Course.begun(score_of(trainer, halves.held_out), trainer.weights())
    found = fit(
        trainer, halves, pace, course, after_pass=lambda _, score: scores.append(score), teacher=teacher
    )
    return found, scores


def test_it_stops_where_nothing_is_gained_and_ends_with_the_best(trainer, halves):
    course, scores = trained(trainer, halves)
    best = max(
        (score for score in scores if score.loss <= course.ceiling),
        key=lambda score: (score.accuracy, -score.loss),
    )
    assert course.best == best
    assert course.passes == len(scores) < PACE.most_passes
    assert not any(score == best or score.loss == course.lowest for score in scores[-PACE.patience :])
    assert score_of(trainer, halves.held_out) == pytest.approx(course.best, rel=1e-5)


def test_steps_become_smaller_from_the_best_weights_on():
    """Three passes gain nothing, twice; one that is not finite is enough."""
    pace = Pace(learning_rate=0.9, patience=3, slowdowns=2)
    start, last = {"a": np.zeros(1, np.float32)}, {"a": np.ones(1, np.float32)}
    course = Course.begun(Score(0.5, 1.0), start)
    rates = []
    while not course.has_converged(pace):
        rates.append(course.learning_rate(pace))
        assert course.weights is (start if course.idle == 0 else last)
        course = course.after(Score(0.4, math.inf if len(rates) == 7 else 1.1), last, pace)
    assert rates == pytest.approx([0.9] * 3 + [0.3] * 3 + [0.1])
    assert (course.best, course.best_weights) == (Score(0.5, 1.0), start)


def test_accuracy_tells_what_is_best_and_a_loss_that_falls_is_waited_for():
    start, last = {"a": np.zeros(1, np.float32)}, {"a": np.ones(1, np.float32)}
    course = replace(Course.begun(Score(0.5, 1.0), start), idle=1, ceiling=1.2)
    worse = course.after(Score(0.5, 1.1), last, PACE)
    lower = course.after(Score(0.4, 0.9), last, PACE)
    higher = course.after(Score(0.6, 1.1), last, PACE)
    by_chance = course.after(Score(0.6, 1.3), last, PACE)
    assert (by_chance.best.accuracy, by_chance.idle) == (0.5, 2)
    assert [after.best.accuracy for after in (worse, lower, higher)] == [0.5, 0.5, 0.6]
    assert [after.idle for after in (worse, lower, higher)] == [2, 0, 0]
    assert [after.lowest for after in (worse, lower, higher)] == [1.0, 0.9, 1.0]
    assert (higher.best_weights, lower.best_weights) == (last, start)


def test_a_broken_off_course_goes_on(trainer, halves):
    first, _ = trained(trainer, halves, Pace(learning_rate=0.01, patience=9, most_passes=3))
    rest, scores = trained(trainer, halves, Pace(learning_rate=0.01, patience=9, most_passes=5), first)
    assert (rest.passes, len(scores)) == (5, 2)


def test_what_diverges_goes_back_to_the_best(trainer, halves):
    began = score_of(trainer, halves.held_out)
    course, scores = trained(trainer, halves, Pace(learning_rate=1e9, patience=2, most_passes=9))
    assert min(score.loss for score in scores) > began.loss
    assert course.best == began
    assert score_of(trainer, halves.held_out) == pytest.approx(began, rel=1e-5)


def test_scores_are_those_of_all_examples(trainer):
    """More than are evaluated at a time."""
    some = examples(3, 600)
    told = trainer.infer(some.inputs)["scores"]
    true = some.targets["scores"]
    found = score_of(trainer, some)
    assert found.accuracy == pytest.approx(np.mean(told.argmax(1) == true))
    assert found.loss == pytest.approx(-np.mean(np.log(told[np.arange(600), true])), rel=1e-4)


def test_a_teacher_is_learned_from_by_the_rows_of_the_batch(trainer, halves):
    """It says the opposite of the targets, and counts so much more that they are unlearned."""
    wrong = np.eye(3, dtype=np.float32)[(halves.examples.targets["scores"] + 1) % 3]
    pace = Pace(learning_rate=0.002, patience=99, most_passes=15, kd_weight=20.0)
    course, _ = trained(trainer, halves, pace, teacher=lambda rng: lambda rows: {"scores": wrong[rows]})
    trainer.restore(course.weights)
    told = trainer.infer(halves.held_out.inputs)["scores"].argmax(1)
    assert np.mean(told == (halves.held_out.targets["scores"] + 1) % 3) > 0.6


def progress(trainer, stage=Stage.TAUGHT):
    weights = trainer.weights()
    other = {name: values + 1 for name, values in weights.items()}
    return Progress(
        stage=stage,
        began=Score(0.25, math.inf),
        course=Course(Score(0.5, 1.0), weights, other, 7, 2, 1, 0.9, 1.2),
        round=2,
        before=Score(0.4, 1.5),
        noisy=Course(Score(0.3, 2.0), other, weights, 4, 1),
        teachers=("a", "b"),
    )


def same(some, others):
    return set(some) == set(others) and all(np.array_equal(some[name], others[name]) for name in some)


def test_progress_is_kept(trainer, tmp_path):
    file = ProgressFile(tmp_path / "progress", "of this")
    assert file.load() is None
    kept = progress(trainer)
    file.save(kept)
    found = file.load()
    assert (found.stage, found.began, found.round, found.before, found.teachers) == (
        kept.stage, kept.began, kept.round, kept.before, kept.teachers,
    )  # fmt: skip
    for ours, theirs in ((found.course, kept.course), (found.noisy, kept.noisy)):
        assert replace(ours, weights={}, best_weights={}) == replace(theirs, weights={}, best_weights={})
        assert same(ours.weights, theirs.weights)
        assert same(ours.best_weights, theirs.best_weights)
    assert ProgressFile(tmp_path / "progress", "of something else").load() is None


def test_progress_that_cannot_be_read_is_none(trainer, tmp_path):
    file = ProgressFile(tmp_path / "progress", "of this")
    file.save(progress(trainer))
    content = (tmp_path / "progress").read_bytes()
    for spoilt in (b"", content[:100], content[:-9], b"\xff" * 50):
        (tmp_path / "progress").write_bytes(spoilt)
        assert file.load() is None


def test_progress_of_no_privacy_and_no_round_is_kept(trainer, tmp_path):
    file = ProgressFile(tmp_path / "progress", "of this")
    score = Score(0.5, 1.0)
    file.save(Progress(Stage.LOCAL, score, Course.begun(score, trainer.weights())))
    assert (file.load().noisy, file.load().before, file.load().stage) == (None, None, Stage.LOCAL)
