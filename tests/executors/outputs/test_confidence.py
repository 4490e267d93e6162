"""Confidence bounds from a sample of examples, compared with the true values."""

import numpy as np
import pytest

from executors.outputs.confidence import bound_on_loss, lower_bound, reached_with_confidence
from executors.outputs.metrics import score
from executors.outputs.objectives import Binary, Categorical, Regression
from executors.structure.signature import Activation
from mistify.config.data.metric import Metric
from mistify.config.data.targets import OVERALL, Target

OBJECTIVES = {"y": Categorical(Activation.SOFTMAX)}


def answers(count, right, seed):
    """Return predictions [count, 3], each correct with a given probability, and their targets."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(3, size=count)
    predicted = np.where(rng.random(count) < right, targets, (targets + 1) % 3)
    return {"y": np.eye(3, dtype=np.float32)[predicted]}, {"y": targets}


def test_the_bound_on_an_accuracy_is_the_wilson_bound():
    targets = {"y": np.zeros(100, np.int64)}
    outputs = {"y": np.eye(3, dtype=np.float32)[np.r_[np.zeros(90, int), np.ones(10, int)]]}
    # By hand: (p + z^2/2n - z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) at p = 0.9, n = 100, z = 1.28155.
    assert lower_bound(Metric.ACCURACY, OBJECTIVES, outputs, targets) == pytest.approx(0.85486, abs=1e-5)


def test_few_examples_without_mistakes_give_a_lower_bound_than_many():
    few, many = (lower_bound(Metric.ACCURACY, OBJECTIVES, *answers(count, 1.0, 0)) for count in (20, 2_000))
    assert 0.9 < few < 0.95
    assert 0.999 < many < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "figure"), [(Metric.ACCURACY, 0.8), (Metric.EXACT_MATCH, 0.8), (Metric.F1, 0.8)]
)
def test_nine_of_ten_bounds_are_below_the_true_value(metric, figure):
    below = [lower_bound(metric, OBJECTIVES, *answers(200, figure, seed)) <= figure for seed in range(300)]
    assert 0.85 < np.mean(below) < 0.95


def test_the_bound_on_an_error_is_above_it():
    objectives = {"y": Regression(Activation.NONE)}

    def bound(seed):
        rng = np.random.default_rng(seed)
        targets = rng.normal(size=(200, 1)).astype(np.float32)
        outputs = targets + rng.normal(scale=0.5, size=targets.shape).astype(np.float32)
        return lower_bound(Metric.MSE, objectives, {"y": outputs}, {"y": targets})

    assert 0.85 < np.mean([bound(seed) >= 0.25 for seed in range(300)]) < 0.95


def test_the_bound_on_an_area_under_the_curve_is_near_it():
    rng = np.random.default_rng(0)
    targets = {"y": rng.integers(2, size=1_000)}
    outputs = {"y": (targets["y"] + rng.normal(scale=0.7, size=1_000)).astype(np.float32)[:, None]}
    objectives = {"y": Binary(Activation.NONE)}
    figure = score(Metric.ROC_AUC, objectives, outputs, targets)
    bound = lower_bound(Metric.ROC_AUC, objectives, outputs, targets)
    assert figure - 0.03 < bound < figure


def test_a_single_example_gives_no_bound_on_an_error():
    objectives, one = {"y": Regression(Activation.NONE)}, {"y": np.zeros((1, 1), np.float32)}
    assert lower_bound(Metric.MSE, objectives, one, one) == Metric.MSE.worst


def test_every_target_has_to_be_reached_by_the_bound_of_its_score():
    """The accuracy is 0.9, with a bound of 0.855 (see above), and the error is 0.2 everywhere."""
    kinds = np.zeros(100, np.int64)
    predicted = np.eye(3, dtype=np.float32)[np.r_[np.zeros(90, int), np.ones(10, int)]]
    prices = np.arange(100, dtype=np.float32)[:, None]
    right = np.eye(3, dtype=np.float32)[kinds]
    objectives = {
        "kind": Categorical(Activation.SOFTMAX),
        "brand": Categorical(Activation.SOFTMAX),
        "price": Regression(Activation.NONE),
    }
    outputs = {"kind": predicted, "brand": right, "price": prices + 0.2}
    arguments = objectives, outputs, {"kind": kinds, "brand": kinds, "price": prices}

    def reached(kind, price, whole=0.0):
        wanted = (
            Target("kind", Metric.ACCURACY, kind),
            Target("price", Metric.MAE, price),
            Target(OVERALL, Metric.MEAN_SCORE, whole),
        )
        return reached_with_confidence(wanted, *arguments)

    assert reached(0.85, 0.21, 0.9)
    assert not reached(0.86, 0.21, 0.9)
    assert not reached(0.85, 0.19, 0.9)
    assert not reached(0.85, 0.21, 0.97)
    assert reached_with_confidence((), *arguments)


def test_the_bound_on_a_loss_counts_only_examples_that_one_network_gets_right():
    before, after = np.zeros(100, bool), np.zeros(100, bool)
    before[:40] = after[:40] = True
    before[40:46] = True
    after[46:48] = True
    # By hand, with half an example added to each of the four counts: (6.5 - 2.5) / 102, and its error
    # sqrt(9 - 102 x 0.0392^2) / 102 times 1.28155.
    assert bound_on_loss(before, after) == pytest.approx(0.039216 + 1.281552 * 0.029155, abs=1e-5)
    assert bound_on_loss(before, before) == pytest.approx(1.281552 * 1 / 102, abs=1e-6)


def test_the_bound_on_a_loss_holds_in_nine_of_ten_samples():
    rng = np.random.default_rng(0)
    draws = rng.choice(3, p=[0.95, 0.03, 0.02], size=(2_000, 800))  # both, only before, only after
    held = np.mean([bound_on_loss(draw != 2, draw != 1) >= 0.01 for draw in draws])
    assert held == pytest.approx(0.9, abs=0.025)
