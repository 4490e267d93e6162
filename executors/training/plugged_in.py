"""Metrics of outputs that plug-ins add (`mistify.scores`)."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from enum import StrEnum
from functools import cache
from math import isfinite
from typing import ClassVar

from executors.data.storage import Array
from mistify.config.metric import SCORES, Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify.plugins import UnusablePlugInError, load_class, plug_ins


class OutputKind(StrEnum):
    """A kind of output: one of several classes, yes or no, or figures."""

    CLASSES = "classes"
    YES_OR_NO = "yes or no"
    FIGURES = "figures"


class OutputMetric(ABC):
    """The base of metrics of one output, made without arguments. The entry point's name is that in configs.

    If the name ends in `_error`, lower is better, from 0 on. Else the metric is a share between 0 and 1, and
    higher is better: clients and manifests have the name alone. A score depends on nothing but its arguments,
    in which any of the examples may be missing.

    Attributes:
        kinds: The outputs that it suits.
    """

    kinds: ClassVar[Collection[OutputKind]]

    @abstractmethod
    def score(self, predictions: Array, targets: Array) -> float:
        """Return the score of predictions.

        Args:
            predictions: Probabilities [counted, classes] or [counted], or figures [counted].
            targets: Classes, 0 or 1, or figures, [counted]; nothing that is ignored is among them.
        """


@cache
def plugged_in(metric: Metric) -> OutputMetric:
    """Return the metric that a plug-in adds.

    Raises:
        InvalidValue: There is no such plug-in, or it cannot be used.
    """
    point = plug_ins(SCORES).get(metric.value)
    if point is None:
        raise InvalidValue(metric.value, "the name of a metric", "install the plug-in that defines it")
    try:
        made = load_class(point, OutputMetric)()
        if not made.kinds:
            raise UnusablePlugInError(f"{point.value}: names no kinds of outputs")
    except (UnusablePlugInError, TypeError, AttributeError) as error:
        fix = f"mend the plug-in {metric}: {error}"
        raise InvalidValue(metric.value, "the name of a metric that can be used", fix) from error
    return made


def plugged_in_score(metric: Metric, predictions: Array, targets: Array) -> float:
    """Return the score by the metric of a plug-in.

    Raises:
        MistifyError: INTERNAL, the plug-in returns something that is no score.
    """
    figure = float(plugged_in(metric).score(predictions, targets))
    if isfinite(figure) and 0 <= figure <= (1.0 if metric.is_share else figure):
        return figure
    expected = "a share from 0 to 1" if metric.is_share else "an error of 0 or more"
    raise MistifyError(
        ErrorCode.INTERNAL,
        f"the plug-in's metric {metric} is {figure}; expected {expected}; mend the plug-in",
    )
