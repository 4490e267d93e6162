"""Metrics, compared with scikit-learn on each output."""

import numpy as np
import pytest
from sklearn import metrics as reference

from executors.data import Dataset
from executors.outputs.metrics import (
    check_labels,
    check_metric,
    check_output_metric,
    default_metric,
    measured,
    output_scores,
    score,
)
from executors.outputs.objectives import IGNORED, Binary, Categorical, Regression
from executors.structure.signature import Activation
from mistify.config.data.metric import Metric
from mistify.parsing.validation import InvalidValue

RNG = np.random.default_rng(0)
LOGITS, SIGMOID = Categorical(Activation.NONE), Binary(Activation.SIGMOID)
CLASSES = RNG.integers(0, 3, 60)
SCORES = RNG.normal(size=(60, 3)) + np.eye(3)[CLASSES]
ANSWERS = RNG.integers(0, 2, 60)
CHANCES = 1 / (1 + np.exp(-RNG.normal(size=(60, 1)) - ANSWERS[:, None]))
TAGS = RNG.integers(-1, 4, (60, 5))
TAG_SCORES = RNG.normal(size=(60, 5, 4)) + 3 * np.eye(4)[TAGS]
OBJECTIVES = {"intent": LOGITS, "tags": LOGITS, "spam": SIGMOID, "price": Regression(Activation.NONE)}
PRICES, ASKED = RNG.normal(size=(60, 1)), RNG.normal(size=60)
OUTPUTS = {"intent": SCORES, "tags": TAG_SCORES, "spam": CHANCES, "price": PRICES}
TARGETS = {"intent": CLASSES, "tags": TAGS, "spam": ANSWERS, "price": ASKED}
KEPT = TAGS >= 0


def of(metric, *names):
    objectives = {name: OBJECTIVES[name] for name in names}
    return score(metric, objectives, OUTPUTS, TARGETS)


def test_accuracy_is_that_of_scikit_learn():
    predicted = SCORES.argmax(1)
    assert of(Metric.ACCURACY, "intent") == pytest.approx(reference.accuracy_score(CLASSES, predicted))
    assert of(Metric.ACCURACY, "tags") == pytest.approx(
        reference.accuracy_score(TAGS[KEPT], TAG_SCORES.argmax(2)[KEPT])
    )
    assert of(Metric.ACCURACY, "spam") == pytest.approx(
        reference.accuracy_score(ANSWERS, CHANCES[:, 0] >= 0.5)
    )


def test_a_metric_is_the_mean_over_the_outputs_that_it_suits():
    alone = [of(Metric.ACCURACY, name) for name in ("intent", "tags", "spam")]
    assert of(Metric.ACCURACY, *OBJECTIVES) == pytest.approx(np.mean(alone))
    assert of(Metric.MSE, *OBJECTIVES) == of(Metric.MSE, "price")


def test_f1_is_the_mean_over_the_classes():
    expected = reference.f1_score(TAGS[KEPT], TAG_SCORES.argmax(2)[KEPT], average="macro")
    assert of(Metric.F1, "tags") == pytest.approx(expected)
    expected = reference.f1_score(ANSWERS, CHANCES[:, 0] >= 0.5, average="macro")
    assert of(Metric.F1, "spam") == pytest.approx(expected)


def test_mean_squared_error_is_that_of_scikit_learn():
    expected = reference.mean_squared_error(ASKED, PRICES[:, 0])
    assert of(Metric.MSE, "price") == pytest.approx(expected)


def test_area_under_the_curve_is_that_of_scikit_learn():
    assert of(Metric.ROC_AUC, "spam") == pytest.approx(reference.roc_auc_score(ANSWERS, CHANCES[:, 0]))
    shares = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
    expected = reference.roc_auc_score(CLASSES, shares, multi_class="ovr")
    assert of(Metric.ROC_AUC, "intent") == pytest.approx(expected)


def test_an_exact_match_requires_all_outputs_and_positions_to_be_right():
    right = [
        SCORES[row].argmax() == CLASSES[row]
        and (CHANCES[row, 0] >= 0.5) == ANSWERS[row]
        and all(
            TAG_SCORES[row, position].argmax() == TAGS[row, position]
            for position in range(5)
            if TAGS[row, position] >= 0
        )
        for row in range(60)
    ]
    actual = of(Metric.EXACT_MATCH, *OBJECTIVES)
    assert actual == pytest.approx(np.mean(right))
    assert 0.05 < actual < of(Metric.EXACT_MATCH, "tags")


def test_a_span_matches_if_start_and_end_are_right():
    """Positions are classes; one of three examples has both right, one only the start, and one neither."""
    start = np.eye(8)[[2, 3, 4]]
    end = np.eye(8)[[5, 6, 7]]
    objectives = {"start": Categorical(Activation.SOFTMAX), "end": Categorical(Activation.SOFTMAX)}
    targets = {"start": np.array([2, 3, 0]), "end": np.array([5, 0, 0])}
    outputs = {"start": start, "end": end}
    assert score(Metric.EXACT_MATCH, objectives, outputs, targets) == pytest.approx(1 / 3)


def test_the_default_metric_suits_the_objectives():
    price, mask = OBJECTIVES["price"], {"mask": np.zeros((5, 4, 4), np.int64)}
    assert default_metric({"intent": LOGITS}, TARGETS) is Metric.ACCURACY
    assert default_metric({"tags": LOGITS}, TARGETS) is Metric.ACCURACY
    assert default_metric({"mask": LOGITS}, mask) is Metric.MEAN_IOU
    assert default_metric({"intent": LOGITS, "price": price}, TARGETS) is Metric.MEAN_SCORE
    assert default_metric({"start": LOGITS, "end": LOGITS}, {}) is Metric.EXACT_MATCH
    assert default_metric({"price": price}, TARGETS) is Metric.MSE
    assert default_metric({"x": price, "y": price}, {}) is Metric.MSE


@pytest.mark.parametrize(("metric", "name"), [(Metric.MSE, "intent"), (Metric.F1, "price")])
def test_a_metric_that_suits_no_output_is_refused(metric, name):
    with pytest.raises(InvalidValue):
        measured(metric, {name: OBJECTIVES[name]})


def test_the_area_under_the_curve_needs_two_classes():
    both, one = Dataset({}, {"spam": ANSWERS}), Dataset({}, {"spam": np.zeros(9)})
    check_metric(Metric.ROC_AUC, {"spam": SIGMOID}, {"validation": both, "test": both})
    check_metric(Metric.ACCURACY, {"spam": SIGMOID}, {"test": one})
    with pytest.raises(InvalidValue, match="test data with at least two classes of spam"):
        check_metric(Metric.ROC_AUC, {"spam": SIGMOID}, {"validation": both, "test": one})
    with pytest.raises(InvalidValue, match="validation data with at least two classes of spam"):
        check_metric(Metric.ROC_AUC, {"spam": SIGMOID}, {"validation": one, "test": both})


DENSE = {"mask": Categorical(Activation.SOFTMAX)}


def masks(seed, classes=3):
    """Return classes at each position of images, and predictions of which a third are random."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(-1, classes, size=(5, 4, 4))
    predicted = np.where(rng.random(targets.shape) < 0.3, rng.integers(classes, size=targets.shape), targets)
    return np.eye(classes, dtype=np.float32)[np.maximum(predicted, 0)], targets


def test_intersection_over_union_is_that_of_scikit_learn():
    for seed in range(5):
        outputs, targets = masks(seed)
        counted = targets != IGNORED
        expected = reference.jaccard_score(targets[counted], outputs.argmax(-1)[counted], average="macro")
        figure = score(Metric.MEAN_IOU, DENSE, {"mask": outputs}, {"mask": targets})
        assert figure == pytest.approx(expected)


def test_a_binary_mask_has_two_classes():
    rng = np.random.default_rng(0)
    targets = rng.integers(2, size=(3, 6, 6, 1))
    outputs = rng.random((3, 6, 6, 1)).astype(np.float32)
    figure = score(Metric.MEAN_IOU, {"m": SIGMOID}, {"m": outputs}, {"m": targets})
    expected = reference.jaccard_score(targets.ravel(), outputs.ravel() >= 0.5, average="macro")
    assert figure == pytest.approx(expected)


def test_the_mean_absolute_error_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    targets, outputs = rng.normal(size=(2, 20, 3)).astype(np.float32)
    figure = score(Metric.MAE, {"box": OBJECTIVES["price"]}, {"box": outputs}, {"box": targets})
    assert figure == pytest.approx(reference.mean_absolute_error(targets, outputs))


def test_the_mean_score_uses_the_explained_variance_of_regression_outputs():
    rng = np.random.default_rng(0)
    price = rng.normal(size=(50, 1)).astype(np.float32)
    predicted = price + rng.normal(scale=0.3, size=price.shape).astype(np.float32)
    kinds = rng.integers(3, size=50)
    answers = np.eye(3, dtype=np.float32)[np.where(np.arange(50) < 10, (kinds + 1) % 3, kinds)]
    objectives = {"kind": Categorical(Activation.SOFTMAX), "price": OBJECTIVES["price"]}
    outputs, targets = {"kind": answers, "price": predicted}, {"kind": kinds, "price": price}
    expected = (0.8 + reference.r2_score(price, predicted)) / 2
    assert score(Metric.MEAN_SCORE, objectives, outputs, targets) == pytest.approx(expected)
    outputs["price"] = -10 * price  # worse than a constant counts as 0
    assert score(Metric.MEAN_SCORE, objectives, outputs, targets) == pytest.approx(0.4)


def test_each_output_is_scored_by_its_default_or_chosen_metric():
    outputs, targets = masks(0)
    price = np.zeros((5, 1), np.float32)
    objectives = {**DENSE, "price": OBJECTIVES["price"]}
    arguments = objectives, {"mask": outputs, "price": price}, {"mask": targets, "price": price + 2}
    mask, own = output_scores(*arguments, {})
    assert (mask.output, mask.metric, own.metric, own.value) == ("mask", Metric.MEAN_IOU, Metric.MSE, 4.0)
    mask, own = output_scores(*arguments, {"mask": Metric.ACCURACY, "price": Metric.MAE})
    assert mask.value == score(Metric.ACCURACY, DENSE, {"mask": outputs}, {"mask": targets})
    assert (own.metric, own.value) == (Metric.MAE, 2.0)


@pytest.mark.parametrize(
    ("name", "metric", "said"),
    [("box", Metric.MAE, "price"), ("price", Metric.F1, "mse"), ("kind", Metric.MSE, "accuracy")],
)
def test_a_metric_that_does_not_suit_an_output_is_refused(name, metric, said):
    objectives = {"kind": LOGITS, "price": OBJECTIVES["price"]}
    with pytest.raises(InvalidValue, match=said):
        check_output_metric(name, metric, objectives, {})


def test_balanced_agreement_is_the_mean_over_the_classes_of_the_source():
    predicted = SCORES.argmax(1)
    expected = reference.balanced_accuracy_score(CLASSES, predicted)
    assert of(Metric.BALANCED_AGREEMENT, "intent") == pytest.approx(expected)
    assert of(Metric.AGREEMENT, "intent") == of(Metric.ACCURACY, "intent")
    assert of(Metric.BALANCED_ACCURACY, "intent") == pytest.approx(expected)
    assert Metric.BALANCED_ACCURACY.without_labels is Metric.BALANCED_AGREEMENT


@pytest.mark.parametrize("metric", [Metric.ACCURACY, Metric.BALANCED_ACCURACY])
def test_answers_that_nobody_knows_do_not_count(metric):
    known = np.arange(60) % 3 > 0
    targets = np.where(known, ANSWERS, IGNORED)
    everything = score(metric, {"spam": SIGMOID}, {"spam": CHANCES}, {"spam": targets})
    alone = score(metric, {"spam": SIGMOID}, {"spam": CHANCES[known]}, {"spam": ANSWERS[known]})
    assert everything == pytest.approx(alone)


def test_figures_of_minus_one_count():
    prices, asked = np.full((2, 1), 1.0), np.array([-1.0, 1.0])
    objectives = {"price": OBJECTIVES["price"]}
    assert score(Metric.MSE, objectives, {"price": prices}, {"price": asked}) == pytest.approx(2.0)


def test_there_is_no_accuracy_without_labels():
    objectives = {"intent": LOGITS, "price": OBJECTIVES["price"]}
    plain, balanced, price = output_scores(objectives, OUTPUTS, TARGETS, {}, labelled=False)
    assert (plain.output, plain.metric) == ("intent", Metric.AGREEMENT)
    assert (balanced.output, balanced.metric) == ("intent", Metric.BALANCED_AGREEMENT)
    assert price.metric is Metric.MSE
    check_labels(None)
    check_labels(Metric.AGREEMENT)
    with pytest.raises(InvalidValue, match="agreement: there are no true labels"):
        check_labels(Metric.ACCURACY)
