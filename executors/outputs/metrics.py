"""Metrics of a network's predictions on labelled data, computed by Keras or LiteRT."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from executors.data.dataset import Dataset
from executors.data.storage import Array
from executors.outputs.objectives import IGNORED, OutputObjective, Regression
from executors.outputs.plugged_in import OutputKind, plugged_in, plugged_in_score
from mistify.config.data.metric import Metric, OutputScore
from mistify.parsing.validation import InvalidValue, unknown_name

#: Targets with at least this many dimensions, including that of the examples, are a class per image position.
_IMAGE_DIMENSIONS: Final = 3

#: A metric of one output, given predictions and targets without ignored positions.
OfOutput = Callable[[Array, Array], float]


def score(
    metric: Metric, objectives: Mapping[str, OutputObjective], outputs: Mapping[str, Array],
    targets: Mapping[str, Array],
) -> float:  # fmt: skip
    """Return a metric as the mean over the outputs that it applies to; some metrics combine all outputs.

    Args:
        outputs: Output name -> predictions [examples, ...].
        targets: Output name -> [examples, ...]; positions of -1 are ignored.
    """
    predicted = {name: objectives[name].predictions(outputs[name]) for name in measured(metric, objectives)}
    if metric is Metric.EXACT_MATCH:
        return float(
            np.mean(np.all([_right_examples(predicted[name], targets[name]) for name in predicted], axis=0))
        )
    if metric is Metric.MEAN_SCORE:
        figures = [_quality(objectives[name], predicted[name], targets[name]) for name in predicted]
    else:
        of_output = _OUTPUT_METRICS.get(metric) or partial(plugged_in_score, metric)
        vectors = metric.plugged_in and OutputKind.VECTORS in plugged_in(metric).kinds
        figures = [of_output(*_counted(own, targets[name], vectors)) for name, own in predicted.items()]
    return float(np.mean(figures))


def output_scores(
    objectives: Mapping[str, OutputObjective], outputs: Mapping[str, Array], targets: Mapping[str, Array],
    chosen: Mapping[str, Metric], *, labelled: bool = True,
) -> tuple[OutputScore, ...]:  # fmt: skip
    """Return the score of each output; for agreement with the source, also the balanced score.

    Args:
        outputs: Output name -> predictions [examples, ...].
        targets: Output name -> [examples, ...]; positions of -1 are ignored.
        chosen: Output name -> metric; the other outputs have the default metric of their kind.
        labelled: Whether the targets are true labels rather than the source's predictions.
    """
    metrics = []
    for name, metric in output_metrics(objectives, targets, chosen, labelled=labelled).items():
        metrics.append((name, metric))
        if metric is Metric.AGREEMENT:
            metrics.append((name, Metric.BALANCED_AGREEMENT))
    return tuple(
        OutputScore(name, metric, score(metric, {name: objectives[name]}, outputs, targets))
        for name, metric in metrics
    )


def output_metrics(
    objectives: Mapping[str, OutputObjective],
    targets: Mapping[str, Array],
    chosen: Mapping[str, Metric],
    *,
    labelled: bool,
) -> dict[str, Metric]:
    """Return the metric of each output.

    Args:
        targets: Output name -> [examples, ...].
        chosen: Output name -> metric; the other outputs have the default metric of their kind.
        labelled: Whether the targets are true labels rather than the source's predictions.
    """
    own = {
        name: chosen.get(name, metric_of(objective, targets[name])) for name, objective in objectives.items()
    }
    return own if labelled else {name: metric.without_labels for name, metric in own.items()}


def metric_of(objective: OutputObjective, target: Array) -> Metric:
    """Return the default metric of an output: for figures, a class per image position, or other classes."""
    if isinstance(objective, Regression):
        return Metric.MSE
    return Metric.MEAN_IOU if target.ndim >= _IMAGE_DIMENSIONS else Metric.ACCURACY


def default_metric(objectives: Mapping[str, OutputObjective], targets: Mapping[str, Array]) -> Metric:
    """Return the metric by which networks are compared unless the config sets one.

    For a single output, it is the default metric of its kind. For several outputs, it is `exact_match` if all
    have classes, `mse` if all have figures, and `mean_score` if there are both.
    """
    figures = [isinstance(objective, Regression) for objective in objectives.values()]
    if len(figures) == 1:
        return next(metric_of(objective, targets[name]) for name, objective in objectives.items())
    if any(figures):
        return Metric.MSE if all(figures) else Metric.MEAN_SCORE
    return Metric.EXACT_MATCH


def measured(metric: Metric, objectives: Mapping[str, OutputObjective]) -> list[str]:
    """Return the outputs that a metric applies to.

    Raises:
        InvalidValue: There is no such output, or the metric's plug-in cannot be used.
    """
    kinds = _kinds(metric)
    names = [name for name, objective in objectives.items() if not objective.kinds.isdisjoint(kinds)]
    if not names:
        learned = {kind for objective in objectives.values() for kind in objective.kinds}
        others = [
            one
            for one in Metric
            if not learned.isdisjoint(_kinds(one)) and (len(objectives) > 1 or not one.of_all_outputs)
        ]
        raise InvalidValue(
            metric.value, f"one of {', '.join(others)}", "there is no output of the kind that it measures"
        )
    return names


def _kinds(metric: Metric) -> Collection[OutputKind]:
    """Return the kinds of outputs that a metric applies to."""
    if metric is Metric.MEAN_SCORE:
        return tuple(OutputKind)
    if metric.plugged_in:
        return plugged_in(metric).kinds
    return (OutputKind.CLASSES, OutputKind.YES_OR_NO) if metric.is_share else (OutputKind.FIGURES,)


def check_labels(metric: Metric | None) -> None:
    """Check that a metric needs no true labels, for data with only the source's predictions.

    Raises:
        InvalidValue: The metric needs true labels.
    """
    if metric is not None and metric.without_labels is not metric:
        instead = metric.without_labels
        expected = f"{instead}: there are no true labels"
        raise InvalidValue(metric.value, expected, f'write "{instead}", or give labelled test data')


def check_metric(
    metric: Metric, objectives: Mapping[str, OutputObjective], parts: Mapping[str, Dataset]
) -> None:
    """Check that a metric applies to some output, and is defined on each part of the data.

    Args:
        parts: Name ("validation", "test") -> part of the data.

    Raises:
        InvalidValue: No output has this metric, or it is `roc_auc` and all targets have the same class.
    """
    names = measured(metric, objectives)
    for part, data in parts.items():
        for name in names if metric is Metric.ROC_AUC else ():
            if len(np.setdiff1d(data.targets[name], [IGNORED])) < 2:
                expected = f"another metric, or {part} data with at least two classes of {name}"
                raise InvalidValue(metric.value, expected, "add examples of other classes")


def check_output_metric(
    name: str, metric: Metric, objectives: Mapping[str, OutputObjective], parts: Mapping[str, Dataset]
) -> None:
    """Check that an output exists, and that its metric is defined on each part of the data.

    Args:
        name: Name of the output.
        parts: Name ("validation", "test") -> part of the data.

    Raises:
        InvalidValue: There is no such output, or it does not have this metric.
    """
    if name not in objectives:
        raise InvalidValue(name, *unknown_name(name, objectives))
    check_metric(metric, {name: objectives[name]}, parts)


def _counted(predicted: Array, target: Array, vectors: bool = False) -> tuple[Array, Array]:
    """Return predictions [counted] or [counted, classes] and targets [counted], without ignored positions.

    Args:
        predicted: [examples, ...].
        target: [examples, ...].
        vectors: Whether the figures along the last axis form one value; predictions are then [counted,
            figures].
    """
    if vectors and np.issubdtype(target.dtype, np.floating):
        return predicted.reshape(-1, predicted.shape[-1]), target.reshape(-1, predicted.shape[-1])
    if predicted.size == target.size:
        predicted, target = predicted.reshape(-1), target.reshape(-1)
    if np.issubdtype(target.dtype, np.floating):
        return predicted, target
    counted = target != IGNORED
    return predicted[counted], target[counted]


def _classes(predicted: Array) -> npt.NDArray[np.int64]:
    return np.asarray(predicted.argmax(axis=-1) if predicted.ndim > 1 else predicted >= 0.5, np.int64)


def _accuracy(predicted: Array, target: Array) -> float:
    return float(np.mean(_classes(predicted) == target))


def _balanced_accuracy(predicted: Array, target: Array) -> float:
    """Return the mean recall over the targets' classes."""
    from sklearn.metrics import recall_score  # noqa: PLC0415 (takes a second to import)

    return float(recall_score(target, _classes(predicted), labels=np.unique(target), average="macro"))


def _f1(predicted: Array, target: Array) -> float:
    """Return the mean one-vs-rest F1 score over the classes."""
    from sklearn.metrics import f1_score  # noqa: PLC0415 (as above)

    return float(f1_score(target, _classes(predicted), average="macro", zero_division=0))


def _roc_auc(predicted: Array, target: Array) -> float:
    """Return the mean one-vs-rest score over the targets' classes; with two classes, the binary score."""
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415 (as above)

    _require_finite(predicted)
    if predicted.ndim == 1:
        return float(roc_auc_score(target, predicted))
    present = np.unique(target)
    return float(np.mean([roc_auc_score(target == label, predicted[:, label]) for label in present]))


def _mse(predicted: Array, target: Array) -> float:
    from sklearn.metrics import mean_squared_error  # noqa: PLC0415 (as above)

    _require_finite(predicted)
    return float(mean_squared_error(target, predicted))


def _mae(predicted: Array, target: Array) -> float:
    _require_finite(predicted)
    return float(np.mean(np.abs(predicted - target)))


def _require_finite(predicted: Array) -> None:
    """Refuse predictions for which no distance can be computed.

    Raises:
        FloatingPointError: Some are infinite or NaN.
    """
    finite = np.isfinite(predicted)
    if not finite.all():
        raise FloatingPointError(
            f"the network's outputs are not finite: {predicted[~finite][0]} in {np.sum(~finite):,} of "
            f"{predicted.size:,} values; look for inputs or weights that are too large"
        )


def _mean_iou(predicted: Array, target: Array) -> float:
    """Return the mean over the classes that occur in predictions or targets."""
    classes, true = _classes(predicted), target.astype(np.int64)
    count = int(max(classes.max(initial=0), true.max(initial=0))) + 1
    pairs = np.bincount(count * true + classes, minlength=count * count).reshape(count, count)
    both, either = np.diag(pairs), pairs.sum(axis=0) + pairs.sum(axis=1) - np.diag(pairs)
    return float(np.mean(both[either > 0] / either[either > 0]))


def _quality(objective: OutputObjective, predicted: Array, target: Array) -> float:
    """Return the quality of an output's predictions, between 0 and 1."""
    counted = _counted(predicted, target)
    metric = metric_of(objective, target)
    if metric is not Metric.MSE:
        return _OUTPUT_METRICS[metric](*counted)
    variance = float(np.var(counted[1]))
    error = _mse(*counted)
    return max(0.0, 1 - error / variance) if variance else float(error == 0)


def _right_examples(predicted: Array, target: Array) -> npt.NDArray[np.bool_]:
    """Return which examples are correct at every position that is not ignored [examples]."""
    if predicted.size == target.size:
        right = (predicted >= 0.5).reshape(target.shape) == target
    else:
        right = (predicted.argmax(axis=-1) == target) | (target == IGNORED)
    return np.asarray(right.reshape(len(right), -1).all(axis=1))


_OUTPUT_METRICS: Mapping[Metric, OfOutput] = {
    Metric.ACCURACY: _accuracy,
    Metric.AGREEMENT: _accuracy,
    Metric.BALANCED_ACCURACY: _balanced_accuracy,
    Metric.BALANCED_AGREEMENT: _balanced_accuracy,
    Metric.F1: _f1,
    Metric.MAE: _mae,
    Metric.MEAN_IOU: _mean_iou,
    Metric.MSE: _mse,
    Metric.ROC_AUC: _roc_auc,
}
