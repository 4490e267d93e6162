"""Metrics (`mistify.metrics`) and losses (`mistify.losses`) of plug-ins and of users' own files."""

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
    """A kind of output: one of several classes, yes or no, figures, or figures that belong together.

    Vectors are figures, too: those along the last axis, such as the corners of a box.
    """

    CLASSES = "classes"
    YES_OR_NO = "yes or no"
    FIGURES = "figures"
    VECTORS = "vectors"


class _OfKinds(ABC):
    """The base of plug-ins for outputs of some kinds; made without arguments."""

    kinds: ClassVar[Collection[OutputKind]]


T = TypeVar("T", bound=_OfKinds)


class OutputMetric(_OfKinds):
    """The base of metrics of one output, made without arguments. The entry point's name is that in configs.

    If the name ends in `_error`, lower is better, from 0 on. Otherwise the metric is a share between 0 and 1,
    and higher is better: clients and manifests know only the name. A score depends on nothing but its
    arguments, which may be any part of the examples.

    Attributes:
        kinds: The kinds of outputs that it suits.
    """

    @abstractmethod
    def score(self, predictions: Array, targets: Array) -> float:
        """Return the score of predictions.

        Args:
            predictions: Probabilities [counted, classes] or [counted], figures [counted], or vectors
                [counted, figures].
            targets: Classes, 0 or 1, or figures [counted], or vectors; ignored positions are left out.
        """


class OutputLoss(_OfKinds):
    """The base of losses of one output, made without arguments. The entry point's name is that in configs.

    It is made of TensorFlow operations, and traced without autograph. A package is trained by it on a device
    if LiteRT has these operations, and their gradients.

    Attributes:
        kinds: The kinds of outputs that it suits.
    """

    @abstractmethod
    def loss(self, predictions: Any, targets: Any, counts: Any) -> Any:
        """Return the loss of a batch [], 0 at best.

        Args:
            predictions: Probabilities [n, ..., classes] or [n, ...], or figures [n, ...].
            targets: Classes [n, ...], or of the shape of the predictions 0 or 1, or figures, all in float32
                but for classes; where they are ignored, any of these.
            counts: Weight of each target, of the targets' shape: the weight of its class, which is 1 by
                default, and 0 where it is ignored.
        """


#: Files with metrics and losses, by the names of these.
_CODE: ContextVar[Mapping[str, CodeFile]] = ContextVar("code")


@contextmanager
def code_from(files: Mapping[str, CodeFile]) -> Iterator[None]:
    """Take metrics and losses from files inside the block, even if plug-ins have the same names."""
    token = _CODE.set(files)
    try:
        yield
    finally:
        _CODE.reset(token)


def plugged_in(metric: Metric) -> OutputMetric:
    """Return the metric that a plug-in or a file adds.

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
    """Return the loss that a plug-in or a file adds.

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
    """A function of predictions and targets, which suits every output."""

    kinds = (OutputKind.CLASSES, OutputKind.YES_OR_NO, OutputKind.FIGURES)

    def __init__(self, function: Callable[[Array, Array], float]) -> None:
        self._function = function

    @override
    def score(self, predictions: Array, targets: Array) -> float:
        return self._function(predictions, targets)


class _LossFunction(OutputLoss):
    """A function of predictions, targets and counts, which suits every output."""

    kinds = (OutputKind.CLASSES, OutputKind.YES_OR_NO, OutputKind.FIGURES)

    def __init__(self, function: Callable[[Any, Any, Any], Any]) -> None:
        self._function = function

    @override
    def loss(self, predictions: Any, targets: Any, counts: Any) -> Any:
        return self._function(predictions, targets, counts)


@cache
def _from_file(path: str, sha256: str | None, name: str, base: type[T], of_function: Callable[[Any], T]) -> T:
    """Return the object with a name in a file: a class derived from the base, or a function.

    The file runs by itself: modules beside it cannot be imported.
    """
    content = Path(path).read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InvalidValue(path, "the file as it was when the job was submitted", "submit the config again")
    module = ModuleType(Path(path).stem)
    module.__file__ = path
    try:
        exec(compile(content, path, "exec"), vars(module))  # noqa: S102 (the operator allows it)
        definition = vars(module)[name]
    except Exception as error:  # what a user's file raises is its own business
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
    except Exception as error:  # what a plug-in raises is its own business
        fix = f"fix the plug-in {name}: {error}"
        raise InvalidValue(name, f"the name of a {what} that can be used", fix) from error


def _instance(definition: type[T]) -> T:
    """Return an instance of a class, which has to suit some outputs."""
    made = definition()
    if not made.kinds:
        raise ValueError(f"{definition.__module__}.{definition.__qualname__} names no kinds of outputs")
    return made


def plugged_in_score(metric: Metric, predictions: Array, targets: Array) -> float:
    """Return the score by the metric of a plug-in.

    Raises:
        MistifyError: INTERNAL, the plug-in fails, or returns something that is no score.
    """
    try:
        figure = float(plugged_in(metric).score(predictions, targets))
    except Exception as error:  # what a plug-in raises is its own business
        message = f"the plug-in's metric {metric} fails: {error!r}; fix the plug-in"
        raise MistifyError(ErrorCode.INTERNAL, message) from error
    if isfinite(figure) and 0 <= figure <= (1.0 if metric.is_share else figure):
        return figure
    expected = "a share from 0 to 1" if metric.is_share else "an error of 0 or more"
    raise MistifyError(
        ErrorCode.INTERNAL,
        f"the plug-in's metric {metric} is {figure}; expected {expected}; fix the plug-in",
    )
