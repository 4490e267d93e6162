"""Metrics (`mistify.metrics`) and losses (`mistify.losses`) from plug-ins and from users' files."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from functools import cache
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

from executors.data.storage import Array
from mistify.config.data.code import CodeFile
from mistify.config.data.loss import LOSSES
from mistify.config.data.metric import METRICS, Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify.plugins import load_class, plug_ins

__all__ = ["OutputKind", "OutputLoss", "OutputMetric"]


class OutputKind(StrEnum):
    """A kind of output: one of several classes, a binary label, figures, or vectors of figures.

    A vector holds the figures along the last axis, such as the corners of a box.
    """

    CLASSES = "classes"
    YES_OR_NO = "yes or no"
    FIGURES = "figures"
    VECTORS = "vectors"


class _OfKinds(ABC):
    """The base class of plug-ins for outputs of certain kinds; instantiated without arguments."""

    kinds: ClassVar[Collection[OutputKind]]


T = TypeVar("T", bound=_OfKinds)


class OutputMetric(_OfKinds):
    """The base class of metrics of one output. In configs, a metric is named after its entry point.

    If the name ends in `_error`, lower is better, from 0 on. Otherwise the metric is a share between 0 and 1,
    and higher is better: clients and manifests only have the name. A score must depend only on its arguments,
    which may be any subset of the examples.

    Attributes:
        kinds: The kinds of outputs that it applies to.
    """

    @abstractmethod
    def score(self, predictions: Array, targets: Array) -> float:
        """Return the score of predictions.

        Args:
            predictions: Probabilities [counted, classes] or [counted], figures [counted], or vectors
                [counted, figures].
            targets: Classes, 0 or 1, or figures [counted], or vectors, without ignored positions.
        """


class OutputLoss(_OfKinds):
    """The base class of losses of one output. In configs, a loss is named after its entry point.

    It consists of TensorFlow operations, traced without autograph. Packages can be trained with it on devices
    if LiteRT supports these operations and their gradients.

    Attributes:
        kinds: The kinds of outputs that it applies to.
    """

    @abstractmethod
    def loss(self, predictions: Any, targets: Any, counts: Any) -> Any:
        """Return the loss of a batch [], 0 at best.

        Args:
            predictions: Probabilities [n, ..., classes] or [n, ...], or figures [n, ...].
            targets: Integer classes [n, ...]; or 0 or 1, or figures, in float32 and of the predictions'
                shape. Ignored targets have arbitrary valid values.
            counts: Weight of each target, of the targets' shape: the weight of its class (1 by default), or 0
                if it is ignored.
        """


#: Metric or loss name -> file that defines it.
_CODE: ContextVar[Mapping[str, CodeFile]] = ContextVar("code")


@contextmanager
def code_from(files: Mapping[str, CodeFile]) -> Iterator[None]:
    """Use metrics and losses from files inside the block, even if plug-ins have the same names."""
    token = _CODE.set(files)
    try:
        yield
    finally:
        _CODE.reset(token)


def plugged_in(metric: Metric) -> OutputMetric:
    """Return the metric with this name from a plug-in or a file.

    Raises:
        InvalidValue: There is no such metric, or it cannot be used.
    """
    file = _CODE.get({}).get(metric.value)
    made: OutputMetric
    if file is None:
        made = _made(METRICS, metric.value, OutputMetric, "metric")
    else:
        made = _from_file(file.path, file.sha256, metric.value, OutputMetric, _MetricFunction)
    return made


def plugged_in_loss(name: str) -> OutputLoss:
    """Return the loss with this name from a plug-in or a file.

    Raises:
        InvalidValue: There is no such loss, or it cannot be used.
    """
    file = _CODE.get({}).get(name)
    made: OutputLoss
    if file is None:
        made = _made(LOSSES, name, OutputLoss, "loss")
    else:
        made = _from_file(file.path, file.sha256, name, OutputLoss, _LossFunction)
    return made


class _MetricFunction(OutputMetric):
    """A function of predictions and targets, applicable to every output."""

    kinds = (OutputKind.CLASSES, OutputKind.YES_OR_NO, OutputKind.FIGURES)

    def __init__(self, function: Callable[[Array, Array], float]) -> None:
        self._function = function

    @override
    def score(self, predictions: Array, targets: Array) -> float:
        return self._function(predictions, targets)


class _LossFunction(OutputLoss):
    """A function of predictions, targets and counts, applicable to every output."""

    kinds = (OutputKind.CLASSES, OutputKind.YES_OR_NO, OutputKind.FIGURES)

    def __init__(self, function: Callable[[Any, Any, Any], Any]) -> None:
        self._function = function

    @override
    def loss(self, predictions: Any, targets: Any, counts: Any) -> Any:
        return self._function(predictions, targets, counts)


@cache
def _from_file(path: str, sha256: str | None, name: str, base: type[T], of_function: Callable[[Any], T]) -> T:
    """Return the object with a name in a file: an instance of a subclass of the base, or a wrapped function.

    The file runs on its own: it cannot import modules from its directory.
    """
    content = Path(path).read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InvalidValue(path, "the file as it was when the job was submitted", "submit the config again")
    module = ModuleType(Path(path).stem)
    module.__file__ = path
    try:
        exec(compile(content, path, "exec"), vars(module))  # noqa: S102 (the operator allows it)
        definition = vars(module)[name]
    except Exception as error:  # a user's file may raise anything
        raise InvalidValue(name, f"a name in {Path(path).name}", f"fix the file: {error!r}") from error
    if callable(definition) and not isinstance(definition, type):
        return of_function(definition)
    expected = f"a function, or a class derived from {base.__module__}.{base.__qualname__}"
    if not (isinstance(definition, type) and issubclass(definition, base)):
        raise InvalidValue(name, expected, "define one")
    try:
        return _instance(definition)
    except Exception as error:  # as above
        raise InvalidValue(name, expected, f"fix the file: {error!r}") from error


@cache
def _made(group: str, name: str, base: type[T], what: str) -> T:
    point = plug_ins(group).get(name)
    if point is None:
        raise InvalidValue(name, f"the name of a {what}", "install the plug-in that defines it")
    try:
        return _instance(load_class(point, base))
    except Exception as error:  # a plug-in may raise anything
        fix = f"fix the plug-in {name}: {error}"
        raise InvalidValue(name, f"the name of a {what} that can be used", fix) from error


def _instance(definition: type[T]) -> T:
    """Return an instance of a class, which must apply to some kinds of outputs."""
    made = definition()
    if not made.kinds:
        raise ValueError(f"{definition.__module__}.{definition.__qualname__} names no kinds of outputs")
    return made


def plugged_in_score(metric: Metric, predictions: Array, targets: Array) -> float:
    """Return the score by a plug-in's metric.

    Raises:
        MistifyError: INTERNAL if the plug-in fails, or returns an invalid score.
    """
    try:
        figure = float(plugged_in(metric).score(predictions, targets))
    except Exception as error:  # a plug-in may raise anything
        message = f"the plug-in's metric {metric} fails: {error!r}; fix the plug-in"
        raise MistifyError(ErrorCode.INTERNAL, message) from error
    if isfinite(figure) and 0 <= figure <= (1.0 if metric.is_share else figure):
        return figure
    expected = "a share from 0 to 1" if metric.is_share else "an error of 0 or more"
    raise MistifyError(
        ErrorCode.INTERNAL,
        f"the plug-in's metric {metric} is {figure}; expected {expected}; fix the plug-in",
    )
