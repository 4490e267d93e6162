"""Metrics of a network's predictions on labelled data, whether Keras or LiteRT made them."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from sklearn.metrics import f1_score, mean_squared_error, roc_auc_score

from executors.data.dataset import Dataset
from executors.data.storage import Array
from executors.training.objectives import IGNORED, Binary, Categorical, Objective, Regression
from mistify.config.metric import Metric
from mistify.parsing.validation import InvalidValue

#: A metric of one output: predictions and targets, without what is ignored.
OfOutput = Callable[[Array, Array], float]


def score(
    metric: Metric, objectives: Mapping[str, Objective], outputs: Mapping[str, Array],
    targets: Mapping[str, Array],
) -> float:  # fmt: skip
    """Return a metric as the mean over the outputs that have it; `exact_match` is of all of them at once.

    Args:
        metric: Which one.
        objectives: What each output learns.
        outputs: The network's own, [examples, ...] by name.
        targets: [examples, ...] by name; positions of -1 are ignored.
    """
    predicted = {name: objectives[name].predictions(outputs[name]) for name in measured(metric, objectives)}
    if metric is Metric.EXACT_MATCH:
        return float(
            np.mean(np.all([_right_examples(predicted[name], targets[name]) for name in predicted], axis=0))
        )
    return float(
        np.mean([_OF_OUTPUT[metric](*_counted(predicted[name], targets[name])) for name in predicted])
    )


def default_metric(objectives: Mapping[str, Objective]) -> Metric:
    """Return `mse` for figures, `exact_match` for several outputs, else `accuracy`."""
    telling = [objective for objective in objectives.values() if not isinstance(objective, Regression)]
    if not telling:
        return Metric.MSE
    return Metric.EXACT_MATCH if len(telling) > 1 else Metric.ACCURACY


def measured(metric: Metric, objectives: Mapping[str, Objective]) -> list[str]:
    """Return the outputs that a metric can tell of.

    Raises:
        InvalidValue: There is none.
    """
    kinds = (Regression,) if metric is Metric.MSE else (Categorical, Binary)
    names = [name for name, objective in objectives.items() if isinstance(objective, kinds)]
    if not names:
        others = [one for one in Metric if (one is Metric.MSE) != (metric is Metric.MSE)]
        raise InvalidValue(metric.value, f"one of {', '.join(others)}", "no output learns what it measures")
    return names


def check_metric(metric: Metric, objectives: Mapping[str, Objective], parts: Mapping[str, Dataset]) -> None:
    """Make sure that a metric tells of some output, and is a number on each part of the data.

    Args:
        metric: The metric.
        objectives: The objective of each output.
        parts: The parts of the data, by what they are called: "validation", "test".

    Raises:
        InvalidValue: It tells of no output, or it is `roc_auc` of targets that are all of one class.
    """
    names = measured(metric, objectives)
    for part, data in parts.items():
        for name in names if metric is Metric.ROC_AUC else ():
            if len(np.setdiff1d(data.targets[name], [IGNORED])) < 2:
                expected = f"another metric, or {part} data of two classes of {name} at least"
                raise InvalidValue(metric.value, expected, "add examples of other classes")


def _counted(predicted: Array, target: Array) -> tuple[Array, Array]:
    """Return predictions [counted] or [counted, classes] and targets [counted], without what is ignored."""
    if predicted.size == target.size:
        return predicted.reshape(-1), target.reshape(-1)
    counted = target != IGNORED
    return predicted[counted], target[counted]


def _classes(predicted: Array) -> npt.NDArray[np.int64]:
    return np.asarray(predicted.argmax(axis=-1) if predicted.ndim > 1 else predicted >= 0.5, np.int64)


def _accuracy(predicted: Array, target: Array) -> float:
    return float(np.mean(_classes(predicted) == target))


def _f1(predicted: Array, target: Array) -> float:
    """Return the mean over the classes, each as one against the others."""
    return float(f1_score(target, _classes(predicted), average="macro", zero_division=0))


def _roc_auc(predicted: Array, target: Array) -> float:
    """Return the mean over the targets' classes; each against the others where there are more than two."""
    if predicted.ndim == 1:
        return float(roc_auc_score(target, predicted))
    present = np.unique(target)
    return float(np.mean([roc_auc_score(target == label, predicted[:, label]) for label in present]))


def _mse(predicted: Array, target: Array) -> float:
    return float(mean_squared_error(target, predicted))


def _right_examples(predicted: Array, target: Array) -> npt.NDArray[np.bool_]:
    """Return which examples [examples] are right at every position that is not ignored."""
    if predicted.size == target.size:
        right = (predicted >= 0.5).reshape(target.shape) == target
    else:
        right = (predicted.argmax(axis=-1) == target) | (target == IGNORED)
    return np.asarray(right.reshape(len(right), -1).all(axis=1))


_OF_OUTPUT: Mapping[Metric, OfOutput] = {
    Metric.ACCURACY: _accuracy,
    Metric.F1: _f1,
    Metric.MSE: _mse,
    Metric.ROC_AUC: _roc_auc,
}
