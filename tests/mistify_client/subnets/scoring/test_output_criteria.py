"""Scores of outputs, compared with scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, mean_squared_error, r2_score

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.package.training import OutputEncoding
from mistify_client.subnets.scoring.output_criteria import criterion_for

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(40, 5)).astype(np.float32)
CLASSES = RNG.integers(5, size=40)


def softmax(values):
    powers = np.exp(values)
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def _weights(shares):
    """Return the weights of the positive and negative class of each example, alternately."""
    return np.stack([shares, 1 - shares], axis=-1).ravel()


def score(kind, right, output):
    """Compute the score in batches of 16, 16 and 8."""
    criterion = criterion_for(kind, right)
    rows = [slice(start, start + 16) for start in range(0, len(output), 16)]
    return criterion.score(sum(criterion.sums(output[each], each) for each in rows))


@pytest.mark.parametrize(("kind", "output"), [("logits", LOGITS), ("softmax", softmax(LOGITS))])
def test_scores_for_classes_agree_with_scikit_learn(kind, output):
    actual = score(OutputEncoding(kind), CLASSES, output)
    assert actual.accuracy == pytest.approx(accuracy_score(CLASSES, LOGITS.argmax(1)))
    assert actual.loss == pytest.approx(log_loss(CLASSES, softmax(LOGITS), labels=range(5)), rel=1e-5)


def test_unknown_classes_do_not_count():
    known = CLASSES.copy()
    known[::3] = -1
    kept = known >= 0
    actual = score(OutputEncoding.LOGITS, known, LOGITS)
    assert actual.accuracy == pytest.approx(accuracy_score(CLASSES[kept], LOGITS[kept].argmax(1)))
    expected = log_loss(CLASSES[kept], softmax(LOGITS[kept]), labels=range(5))
    assert actual.loss == pytest.approx(expected, rel=1e-5)


def test_scores_for_a_class_at_each_position_agree_with_scikit_learn():
    output = RNG.normal(size=(20, 3, 3, 4)).astype(np.float32)
    classes = RNG.integers(4, size=(20, 3, 3))
    actual = score(OutputEncoding.LOGITS, classes, output)
    assert actual.accuracy == pytest.approx(np.mean(output.argmax(-1) == classes))
    expected = log_loss(classes.ravel(), softmax(output).reshape(-1, 4), labels=range(4))
    assert actual.loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
@pytest.mark.parametrize("shape", [(40,), (40, 1)])
@pytest.mark.parametrize("kind", ["logit", "sigmoid"])
def test_scores_for_binary_labels_agree_with_scikit_learn(kind, shape, dtype):
    values = LOGITS[:, :1]
    right = RNG.integers(2, size=40).astype(dtype)
    actual = score(OutputEncoding(kind), right.reshape(shape), values if kind == "logit" else sigmoid(values))
    assert actual.accuracy == pytest.approx(accuracy_score(right, values[:, 0] > 0))
    assert actual.loss == pytest.approx(log_loss(right, sigmoid(values[:, 0]), labels=[0, 1]), rel=1e-5)


@pytest.mark.parametrize("kind", ["logit", "sigmoid"])
def test_unknown_soft_binary_labels_do_not_count(kind):
    values, right = LOGITS[:, :1], RNG.uniform(size=40).astype(np.float32)
    right[::3] = -1
    kept = right >= 0
    actual = score(OutputEncoding(kind), right, values if kind == "logit" else sigmoid(values))
    yes = sigmoid(values[kept, 0])
    assert actual.accuracy == pytest.approx(accuracy_score(right[kept] > 0.5, yes > 0.5))
    expected = log_loss(np.tile([1, 0], kept.sum()), np.repeat(yes, 2), sample_weight=_weights(right[kept]))
    assert actual.loss == pytest.approx(expected, rel=1e-5)


def test_scores_for_regression_agree_with_scikit_learn():
    right = RNG.normal(size=(40, 3))
    output = (right + 0.3 * RNG.normal(size=(40, 3))).astype(np.float32)
    actual = score(OutputEncoding.FIGURES, right, output)
    expected = r2_score(right, output, multioutput="variance_weighted")
    assert actual.accuracy == pytest.approx(expected, rel=1e-5)
    assert actual.loss == pytest.approx(1 - expected, rel=1e-5)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (Metric.MSE, mean_squared_error),
        (Metric.MAE, mean_absolute_error),
        (Metric.MEAN_SCORE, mean_squared_error),
    ],
)
def test_errors_for_regression_agree_with_scikit_learn(metric, expected):
    right = RNG.normal(1.0, size=(40, 3)) ** 3
    output = (right + 0.3 * RNG.normal(size=(40, 3))).astype(np.float32)
    criterion = criterion_for(OutputEncoding.FIGURES, right, metric)
    loss = criterion.score(criterion.sums(output, slice(0, 40))).loss
    assert loss * criterion.error == pytest.approx(expected(right, output), rel=1e-5)
    best = np.median(right, 0) if metric is Metric.MAE else right.mean(0)
    assert criterion.error == pytest.approx(expected(right, best + 0 * right), rel=1e-5)


def test_predictions_worse_than_the_mean_score_zero():
    right = RNG.normal(size=(40, 1))
    assert score(OutputEncoding.FIGURES, right, 100 + 0 * right).accuracy == 0


@pytest.mark.parametrize("kind", OutputEncoding)
def test_agreement_with_another_network_is_scored(kind):
    """The network's own outputs agree perfectly with the lowest loss; others agree less."""
    values = {OutputEncoding.SOFTMAX: softmax(LOGITS), OutputEncoding.SIGMOID: sigmoid(LOGITS)}.get(
        kind, LOGITS
    )
    right = kind.predictions(values)
    itself = score(kind, right, values)
    assert itself.accuracy == 1
    other = score(kind, right, np.roll(values, 1, axis=0))
    assert other.accuracy < 1
    assert other.loss > itself.loss


def test_labels_that_are_all_unknown_are_refused():
    with pytest.raises(MistifyError, match="none that is known") as caught:
        criterion_for(OutputEncoding.SOFTMAX, np.full(10, -1))
    assert caught.value.code is ErrorCode.INVALID_DATASET
