"""Correlation measures: they map hints to points that are close if the data are similar (paper 5.2)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from mistify.errors import ErrorCode, MistifyError, invalid_config
from mistify.parsing.validation import problems_of
from mistify.peers.hints import Hints
from mistify.plugins import UnusablePlugInError, load_class, plug_ins

__all__ = ["Correlation"]

ENTRY_POINTS: Final = "mistify.correlations"


class Correlation(ABC):
    """A measure of the similarity of two devices' data.

    It maps hints to points whose Euclidean distance is small for similar data. Equal hints have equal points.
    A measure has no state except its settings.
    """

    #: Validates the settings that an operator chooses for a group of devices.
    settings_class: ClassVar[type[BaseModel]]

    @classmethod
    @abstractmethod
    def of(cls, settings: BaseModel) -> "Correlation":
        """Return the measure with settings of `settings_class`."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number of coordinates of a point."""

    @abstractmethod
    def point(self, hints: Hints) -> NDArray[np.float64]:
        """Return the point for hints, [dimension], finite.

        Raises:
            MistifyError: INVALID_PUBLICATION, hints that the measure needs are missing, do not fit its
                settings, or are sent although it does not use them.
        """


def correlation(name: str, settings: Mapping[str, object]) -> Correlation:
    """Return the measure with a name, from the entry points `mistify.correlations`.

    Raises:
        MistifyError: INVALID_CONFIG, there is no such measure, its plug-in cannot be used, or its settings
            are invalid, with every problem in them.
    """
    measures = plug_ins(ENTRY_POINTS)
    if name not in measures:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f'got the correlation measure "{name}"; expected one of {", ".join(measures)}',
        )
    measure = _loaded(measures[name])
    try:
        return measure.of(measure.settings_class.model_validate(settings))
    except ValidationError as error:
        problems = problems_of(error, measure.settings_class, name, settings)
        raise invalid_config(problems, "the correlation measure") from error


def _loaded(point: EntryPoint) -> type[Correlation]:
    try:
        return load_class(point, Correlation)
    except UnusablePlugInError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f'the correlation measure "{point.name}" cannot be used: {error}; fix or '
            "remove the plug-in that defines it",
        ) from error
