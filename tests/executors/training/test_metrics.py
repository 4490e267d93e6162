"""Metrics against scikit-learn on each output alone."""

import numpy as np
import pytest
from sklearn import metrics as reference

from executors.data import Dataset
from executors.structure.signature import Activation
from executors.training.metrics import check_metric, default_metric, measured, score
from executors.training.objectives import Binary, Categorical, Regression
from mistify.config.metric import Metric
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


def test_accuracy():
    predicted = SCORES.argmax(1)
    assert of(Metric.ACCURACY, "intent") == pytest.approx(reference.accuracy_score(CLASSES, predicted))
    assert of(Metric.ACCURACY, "tags") == pytest.approx(
        reference.accuracy_score(TAGS[KEPT], TAG_SCORES.argmax(2)[KEPT])
    )
    assert of(Metric.ACCURACY, "spam") == pytest.approx(
        reference.accuracy_score(ANSWERS, CHANCES[:, 0] >= 0.5)
    )


def test_a_metric_is_the_mean_over_the_outputs_it_can_tell_of():
    alone = [of(Metric.ACCURACY, name) for name in ("intent", "tags", "spam")]
    assert of(Metric.ACCURACY, *OBJECTIVES) == pytest.approx(np.mean(alone))
    assert of(Metric.MSE, *OBJECTIVES) == of(Metric.MSE, "price")


def test_f1_is_the_mean_over_the_classes():
    expected = reference.f1_score(TAGS[KEPT], TAG_SCORES.argmax(2)[KEPT], average="macro")
    assert of(Metric.F1, "tags") == pytest.approx(expected)
    expected = reference.f1_score(ANSWERS, CHANCES[:, 0] >= 0.5, average="macro")
    assert of(Metric.F1, "spam") == pytest.approx(expected)


def test_mean_squared_error():
    expected = reference.mean_squared_error(ASKED, PRICES[:, 0])
    assert of(Metric.MSE, "price") == pytest.approx(expected)


def test_area_under_the_curve():
    assert of(Metric.ROC_AUC, "spam") == pytest.approx(reference.roc_auc_score(ANSWERS, CHANCES[:, 0]))
    shares = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
    expected = reference.roc_auc_score(CLASSES, shares, multi_class="ovr")
    assert of(Metric.ROC_AUC, "intent") == pytest.approx(expected)


def test_an_example_matches_if_all_of_it_is_right():
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


def test_a_span_is_its_start_and_its_end():
    """Positions as classes; of the three examples one has both right, one the start alone, one nothing."""
    start = np.eye(8)[[2, 3, 4]]
    end = np.eye(8)[[5, 6, 7]]
    objectives = {"start": Categorical(Activation.SOFTMAX), "end": Categorical(Activation.SOFTMAX)}
    targets = {"start": np.array([2, 3, 0]), "end": np.array([5, 0, 0])}
    outputs = {"start": start, "end": end}
    assert score(Metric.EXACT_MATCH, objectives, outputs, targets) == pytest.approx(1 / 3)


def test_the_default_suits_the_objectives():
    assert default_metric({"intent": LOGITS}) is Metric.ACCURACY
    assert default_metric({"intent": LOGITS, "price": OBJECTIVES["price"]}) is Metric.ACCURACY
    assert default_metric({"start": LOGITS, "end": LOGITS}) is Metric.EXACT_MATCH
    assert default_metric({"price": OBJECTIVES["price"]}) is Metric.MSE


@pytest.mark.parametrize(("metric", "name"), [(Metric.MSE, "intent"), (Metric.F1, "price")])
def test_a_metric_that_tells_of_no_output_is_refused(metric, name):
    with pytest.raises(InvalidValue):
        measured(metric, {name: OBJECTIVES[name]})


def test_the_area_under_the_curve_needs_two_classes():
    both, one = Dataset({}, {"spam": ANSWERS}), Dataset({}, {"spam": np.zeros(9)})
    check_metric(Metric.ROC_AUC, {"spam": SIGMOID}, {"validation": both, "test": both})
    check_metric(Metric.ACCURACY, {"spam": SIGMOID}, {"test": one})
    with pytest.raises(InvalidValue, match="test data of two classes of spam"):
        check_metric(Metric.ROC_AUC, {"spam": SIGMOID}, {"validation": both, "test": one})
    with pytest.raises(InvalidValue, match="validation data of two classes of spam"):
        check_metric(Metric.ROC_AUC, {"spam": SIGMOID}, {"validation": one, "test": both})
