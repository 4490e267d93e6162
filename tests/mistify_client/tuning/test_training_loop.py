"""When training stops, which weights it keeps, and learning from a teacher."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mistify_client.examples import Examples
from mistify_client.tuning.augmentation import Augmentation
from mistify_client.tuning.examples import split
from mistify_client.tuning.progress import ProgressFile, Stage, TuningProgress
from mistify_client.tuning.trainer import load_trainer
from mistify_client.tuning.training_loop import Score, TrainingSettings, TrainingState, fit, score_of
from tests.mistify_client.tuning.devices import examples

SETTINGS = TrainingSettings(learning_rate=0.02, patience=3, slowdowns=1, most_passes=60)


@pytest.fixture
def trainer(device):
    return device(0).trainer()


@pytest.fixture
def halves():
    return split(examples(5, 200), 0.2, 8)


def trained(trainer, halves, settings=SETTINGS, state=None, teacher=None):
    scores = []
    state = state or initial(score_of(trainer, halves.held_out), trainer.weights(), 40)
    actual = fit(
        trainer, halves, settings, state, after_pass=lambda _, score: scores.append(score), teacher=teacher
    )
    return actual, scores


def initial(score, weights, examples=100, floor=None):
    return TrainingState.initial(score, weights, floor or score, examples)


def test_training_stops_without_progress_and_ends_with_the_best_weights(trainer, halves):
    """The reference applies the one-standard-error rule to all passes."""
    began = score_of(trainer, halves.held_out)
    state, scores = trained(trainer, halves)
    counted = [s for s in [began, *scores] if s.accuracy >= began.accuracy and s.loss <= began.loss]
    peak = max(score.accuracy for score in counted)
    near = [s for s in counted if s.accuracy >= peak - np.sqrt(peak * (1 - peak) / 40)]
    assert state.best == min(near, key=lambda score: score.loss)
    assert state.passes == len(scores) < SETTINGS.most_passes
    assert score_of(trainer, halves.held_out) == pytest.approx(state.best, rel=1e-5)


def test_the_learning_rate_is_reduced_and_training_restarts_from_the_best_weights():
    """Three passes without progress, twice; a single non-finite pass suffices."""
    settings = TrainingSettings(learning_rate=0.9, patience=3, slowdowns=2)
    start, last = {"a": np.zeros(1, np.float32)}, {"a": np.ones(1, np.float32)}
    state = initial(Score(0.5, 1.0), start)
    rates = []
    while not state.has_converged(settings):
        rates.append(state.learning_rate(settings))
        assert state.weights is (start if state.idle == 0 else last)
        state = state.after(Score(0.4, math.inf if len(rates) == 7 else 1.1), last, settings)
    assert rates == pytest.approx([0.9] * 3 + [0.3] * 3 + [0.1])
    assert (state.best, state.best_weights) == (Score(0.5, 1.0), start)


@pytest.mark.parametrize(
    ("score", "is_best", "idle"),
    [
        (Score(0.5, 1.1), False, 2),  # no progress
        (Score(0.46, 0.9), True, 0),  # within 0.05, with a lower loss
        (Score(0.44, 0.9), False, 0),  # not within 0.05, although the loss falls
        (Score(0.54, 1.1), False, 0),  # an increase this small may be chance
        (Score(0.56, 1.1), True, 0),  # an increase this large is not chance
        (Score(0.56, 1.3), False, 2),  # a higher loss than at the start
        (Score(0.56, 0.9), True, 0),
    ],
)
def test_the_best_pass_is_chosen_by_accuracy_within_its_standard_error_and_then_by_loss(score, is_best, idle):
    """The standard error is 0.05 for 100 examples at an accuracy of 0.5."""
    start, last = {"a": np.zeros(1, np.float32)}, {"a": np.ones(1, np.float32)}
    state = replace(initial(Score(0.5, 1.0), start, floor=Score(0.45, 1.2)), idle=1)
    after = state.after(score, last, TrainingSettings(patience=9))
    assert (after.best_weights is last, after.idle) == (is_best, idle)
    assert after.best == (score if is_best else Score(0.5, 1.0))


def test_the_best_pass_is_never_less_accurate_than_the_start():
    """0.46 is within a standard error of 0.5, and the loss is lower."""
    start, last = {"a": np.zeros(1, np.float32)}, {"a": np.ones(1, np.float32)}
    state = initial(Score(0.5, 1.0), start).after(Score(0.46, 0.9), last, TrainingSettings())
    assert (state.best, state.best_weights) == (Score(0.5, 1.0), start)


def test_accuracy_does_not_decline_gradually_with_the_loss():
    state = initial(Score(0.5, 1.0), {}, floor=Score(0.1, 2.0))
    for step in range(1, 20):
        state = state.after(Score(0.5 - 0.01 * step, 1.0 - 0.01 * step), {}, TrainingSettings(patience=99))
    assert state.best.accuracy == 0.45


ANNEALED = TrainingSettings(
    learning_rate=0.5, patience=1, slowdowns=0, most_passes=4, augmentation=Augmentation({"scores": 3})
)


def test_with_augmentation_the_learning_rate_falls_from_twice_its_value_to_zero():
    state, rates = initial(Score(0.5, 1.0), {}), []
    while not state.has_converged(ANNEALED):
        rates.append(state.learning_rate(ANNEALED))
        state = state.after(Score(0.4, 1.1), {}, ANNEALED)  # no progress
    half = math.sqrt(0.5)
    assert rates == pytest.approx([1, 0.5 * (1 + half), 0.5, 0.5 * (1 - half)])


@pytest.mark.parametrize(
    ("score", "is_best"),
    [
        (Score(0.58, 1.1), True),  # within 0.05 of 0.6, although its loss is higher
        (Score(0.54, 0.7), False),  # not within 0.05
        (Score(0.58, 1.3), False),  # a higher loss than at the start
    ],
)
def test_the_last_weights_of_a_falling_learning_rate_are_chosen_if_nothing_is_lost(score, is_best):
    """The standard error is 0.05 for 100 examples at an accuracy of 0.6."""
    best, last = {"a": np.zeros(1, np.float32)}, {"a": np.ones(1, np.float32)}
    state = replace(initial(Score(0.6, 0.8), best, floor=Score(0.45, 1.2)), passes=2)
    before = state.after(score, {}, ANNEALED)
    assert before.best == Score(0.6, 0.8)
    assert (replace(state, passes=3).after(score, last, ANNEALED).best_weights is last) == is_best


def test_chance_on_the_way_does_not_exclude_the_last_weights():
    """0.62 is not within a standard error of 0.7, but better than before the training."""
    on_the_way, last = {"a": np.zeros(1, np.float32)}, {"a": np.ones(1, np.float32)}
    state = replace(initial(Score(0.6, 1.0), {}), passes=2).after(Score(0.7, 0.8), on_the_way, ANNEALED)
    assert state.best_weights is on_the_way
    assert state.after(Score(0.62, 0.9), last, ANNEALED).best_weights is last


def test_augmentation_takes_a_fixed_number_of_passes_and_half_of_them_with_peers(trainer, halves):
    """Nothing is gained at this rate, after which training on unchanged examples ends early."""
    augmentation = Augmentation({"scores": 3})
    settings = TrainingSettings(learning_rate=1e-9, patience=1, slowdowns=0, most_passes=5)
    passes = []
    for each in (settings, replace(settings, augmentation=augmentation)):
        passes += [len(trained(trainer, halves, which)[1]) for which in (each, each.with_peers())]
    assert passes[0] == passes[1] < 5
    assert passes[2:] == [5, 3]


@pytest.mark.parametrize("package", ["trainable", "adaptable_trainable"])  # the optimizers are sgd and adam
def test_the_doubled_loss_of_augmented_batches_does_not_lengthen_steps(data, package):
    """Equal images with equal labels remain so, whatever is mixed; the first rate is twice the given one."""
    trainer = load_trainer(data / package, threads=1)
    (image,), (output,) = trainer.manifest.inputs, trainer.manifest.outputs
    images = np.random.default_rng(0).uniform(size=image.shape[1:]).astype(np.float32)
    equal = Examples({image.name: np.tile(images, (80, 1, 1, 1))}, {output.name: np.full(80, 1)})
    start, weights = trainer.weights(), []
    for rate, augmentation in ((2e-3, None), (1e-3, Augmentation({output.name: output.shape[-1]}))):
        settings = TrainingSettings(learning_rate=rate, most_passes=1, augmentation=augmentation)
        trainer.restore(start)
        state, _ = trained(trainer, split(equal, 0.2, 8), settings)
        weights.append(state.weights)
    for name, values in weights[0].items():
        assert weights[1][name] == pytest.approx(values, abs=1e-4)
        assert name.endswith("bias") or not np.array_equal(values, start[name])


def test_interrupted_training_resumes(trainer, halves):
    first, _ = trained(trainer, halves, TrainingSettings(learning_rate=0.01, patience=9, most_passes=3))
    rest, scores = trained(
        trainer, halves, TrainingSettings(learning_rate=0.01, patience=9, most_passes=5), first
    )
    assert (rest.passes, len(scores)) == (5, 2)


def test_diverging_training_returns_to_the_best_weights(trainer, halves):
    began = score_of(trainer, halves.held_out)
    state, scores = trained(trainer, halves, TrainingSettings(learning_rate=1e9, patience=2, most_passes=9))
    assert min(score.loss for score in scores) > began.loss
    assert state.best == began
    assert score_of(trainer, halves.held_out) == pytest.approx(began, rel=1e-5)


def test_scores_cover_all_examples(trainer):
    """There are more examples than an evaluation batch."""
    some = examples(3, 600)
    predicted = trainer.infer(some.inputs)["scores"]
    true = some.targets["scores"]
    actual = score_of(trainer, some)
    assert actual.accuracy == pytest.approx(np.mean(predicted.argmax(1) == true))
    assert actual.loss == pytest.approx(-np.mean(np.log(predicted[np.arange(600), true])), rel=1e-4)


def test_a_teacher_gives_targets_for_the_rows_of_the_batch(trainer, halves):
    """The teacher contradicts the labels, with such a weight that they are unlearned."""
    wrong = np.eye(3, dtype=np.float32)[(halves.examples.targets["scores"] + 1) % 3]
    settings = TrainingSettings(learning_rate=0.002, patience=99, most_passes=15, kd_weight=20.0)
    state, _ = trained(trainer, halves, settings, teacher=lambda rng: lambda rows: {"scores": wrong[rows]})
    trainer.restore(state.weights)
    predicted = trainer.infer(halves.held_out.inputs)["scores"].argmax(1)
    assert np.mean(predicted == (halves.held_out.targets["scores"] + 1) % 3) > 0.6


def progress(trainer, stage=Stage.TAUGHT):
    weights = trainer.weights()
    other = {name: values + 1 for name, values in weights.items()}
    return TuningProgress(
        stage=stage,
        began=Score(0.25, math.inf),
        state=TrainingState(Score(0.5, 1.0), weights, other, Score(0.4, 1.2), 0.6, 0.9, 30, 7, 2, 1),
        round=2,
        before=Score(0.4, 1.5),
        noisy=TrainingState(Score(0.3, 2.0), other, weights, Score(0.2, 3.0), 0.3, 2.0, 20, 4, 1),
        teachers=("a", "b"),
    )


def same(some, others):
    return set(some) == set(others) and all(np.array_equal(some[name], others[name]) for name in some)


def test_progress_is_saved(trainer, tmp_path):
    file = ProgressFile(tmp_path / "progress", "of this")
    assert file.load() is None
    kept = progress(trainer)
    file.save(kept)
    actual = file.load()
    assert (actual.stage, actual.began, actual.round, actual.before, actual.teachers) == (
        kept.stage, kept.began, kept.round, kept.before, kept.teachers,
    )  # fmt: skip
    for ours, theirs in ((actual.state, kept.state), (actual.noisy, kept.noisy)):
        assert replace(ours, weights={}, best_weights={}) == replace(theirs, weights={}, best_weights={})
        assert same(ours.weights, theirs.weights)
        assert same(ours.best_weights, theirs.best_weights)
    assert ProgressFile(tmp_path / "progress", "of something else").load() is None


def test_unreadable_progress_is_ignored(trainer, tmp_path):
    file = ProgressFile(tmp_path / "progress", "of this")
    file.save(progress(trainer))
    content = (tmp_path / "progress").read_bytes()
    for spoilt in (b"", content[:100], content[:-9], b"\xff" * 50):
        (tmp_path / "progress").write_bytes(spoilt)
        assert file.load() is None


def test_progress_without_privacy_or_rounds_is_saved(trainer, tmp_path):
    file = ProgressFile(tmp_path / "progress", "of this")
    score = Score(0.5, 1.0)
    file.save(TuningProgress(Stage.LOCAL, score, initial(score, trainer.weights())))
    assert (file.load().noisy, file.load().before, file.load().stage) == (None, None, Stage.LOCAL)
