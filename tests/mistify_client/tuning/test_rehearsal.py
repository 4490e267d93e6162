import numpy as np
import pytest

from mistify_client.tuning.examples import split
from mistify_client.tuning.forgetting import knowledge
from mistify_client.tuning.rehearsal import Rehearsal, rehearsal_of
from mistify_client.tuning.trainer import load_trainer
from mistify_client.tuning.training_loop import TrainingSettings, TrainingState, fit, score_of
from tests.mistify_client.tuning.devices import SETTINGS, examples
from tests.support.paths import DATA

ROWS = np.array([2, 0])


def test_without_peers_the_original_predictions_are_the_target():
    predictions = {"scores": np.arange(6.0).reshape(3, 2)}
    teacher, settings = Rehearsal(predictions, 0.5).combined_with(None, TrainingSettings(kd_weight=3.0))
    assert settings.kd_weight == 0.5
    targets = teacher(np.random.default_rng(0))(ROWS)
    np.testing.assert_array_equal(targets["scores"], [[4, 5], [0, 1]])


def test_with_peers_the_losses_are_added():
    """Cross-entropy is linear in its targets, so a weighted mean of targets gives the sum of the losses."""
    rng = np.random.default_rng(0)
    known, taught, outputs = (rng.dirichlet(np.ones(3), 4) for _ in range(3))
    rehearsal = Rehearsal({"scores": known}, 0.5)
    teacher, settings = rehearsal.combined_with(
        lambda _rng: lambda rows: {"scores": taught[rows]}, TrainingSettings(kd_weight=2.0)
    )
    mixed = teacher(rng)(ROWS)["scores"]
    entropy = [-(target * np.log(outputs[ROWS])).sum() for target in (mixed, taught[ROWS], known[ROWS])]
    assert settings.kd_weight * entropy[0] == pytest.approx(2.0 * entropy[1] + 0.5 * entropy[2], rel=1e-6)


def test_the_weight_of_rehearsal_is_proportional_to_the_accuracy_of_the_package():
    trainer = load_trainer(DATA / "trainable", 1)
    rehearsal = rehearsal_of(trainer, examples(1, 40), TrainingSettings(rehearsal=2.0))
    assert rehearsal.weight == 2.0 * trainer.manifest.accuracy
    np.testing.assert_allclose(
        rehearsal.predictions["scores"], trainer.infer(examples(1, 40).inputs)["scores"], atol=1e-6
    )
    assert rehearsal_of(trainer, examples(1, 40), TrainingSettings(rehearsal=0.0)) is None


def fitted(trainer, data, settings, teacher=None):
    began, weights = score_of(trainer, data.held_out), trainer.weights()
    state = TrainingState.initial(began, weights, began, len(data.validation))
    fit(trainer, data, settings, state, after_pass=lambda *_: None, teacher=teacher)


def test_rehearsal_reduces_forgetting():
    trainer, size = load_trainer(DATA / "trainable", 1), 8
    fitted(trainer, split(examples(1, 600), 0.2, size), SETTINGS)
    learned, test = trainer.weights(), examples(3, 600)
    before = knowledge(trainer, test)
    of_two = examples(2, 900)
    of_two = of_two.subset(np.flatnonzero(of_two.targets["scores"] < 2))
    data, after = split(of_two, 0.2, size), {}
    for weight in (0.0, 1.0):
        trainer.restore(learned)
        rehearsal = Rehearsal({"scores": np.concatenate([trainer.infer(of_two.inputs)["scores"]])}, weight)
        teacher, settings = rehearsal.combined_with(None, SETTINGS) if weight else (None, SETTINGS)
        fitted(trainer, data, settings, teacher)
        after[weight] = knowledge(trainer, test)
    assert before.by_class[2] > 0.3
    assert after[0.0].by_class[2] < 0.5 * before.by_class[2]
    assert after[1.0].by_class[2] > after[0.0].by_class[2] + 0.1
