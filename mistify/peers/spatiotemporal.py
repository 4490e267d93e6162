"""The built-in correlation measure: place, time, view, features, labels (paper 5.2)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from mistify.errors import Problem
from mistify.parsing.validation import InvalidValue, Settings, shown
from mistify.peers.correlation import Correlation
from mistify.peers.hints import Hints, Location, invalid_hints
from mistify.wording import counted

_EARTH_KM: Final = 6371.0

Point = NDArray[np.float64]
Positive = Annotated[float, Field(gt=0, description="a number above 0")]
Length = Annotated[int, Field(ge=1, le=1024, description="how many numbers, from 1 to 1024", examples=[10])]


class Numbers(Settings):
    """Settings of hints that are lists: their length, and the distance at which data hardly correlate."""

    length: Length
    scale: Positive = 1.0


class Scales(Settings):
    """The hints to compare, and for each the difference at which data hardly correlate (a distance of 1).

    Hints without a scale are not compared and must not be sent; at least one scale is required.

    Attributes:
        location_km: Distance straight through the earth.
        time_hours: Hours between the times.
        view_degrees: Angle between the views; up to 180.
        features: Euclidean distance of the feature summaries.
        labels: Hellinger distance of the label histograms, from 0 to 1.
    """

    location_km: Positive | None = Field(default=None, examples=[1.0])
    time_hours: Positive | None = Field(default=None, examples=[24.0])
    view_degrees: Annotated[float, Field(gt=0, le=180)] | None = Field(
        default=None, description="degrees, above 0 and up to 180", examples=[30]
    )
    features: Numbers | None = None
    labels: Numbers | None = None

    @model_validator(mode="after")
    def _one_counts(self) -> "Scales":
        if not self.model_dump(exclude_none=True):
            raise InvalidValue({}, f"a scale of one of {', '.join(Scales.model_fields)}", "add one")
        return self


@dataclass(frozen=True)
class SpatioTemporal(Correlation):
    """The Euclidean distance over all compared hints, each in units of its scale."""

    settings_class: ClassVar[type[BaseModel]] = Scales
    scales: Scales

    @classmethod
    def of(cls, settings: BaseModel) -> "SpatioTemporal":
        """Return the measure with these scales."""
        return cls(Scales.model_validate(settings))

    @property
    def dimension(self) -> int:
        """Number of coordinates of all compared hints."""
        return sum(self._dimensions().values())

    def point(self, hints: Hints) -> Point:
        """Return the point, [dimension], in units of the scales."""
        if problems := list(self._problems(hints)):
            raise invalid_hints(problems)
        return np.concatenate(list(self._legs(hints)))

    def _dimensions(self) -> dict[str, int]:
        """Return the compared hints, in order, with their number of coordinates."""
        scales = self.scales
        dimensions = {
            "location": scales.location_km and 3,
            "time": scales.time_hours and 1,
            "view_degrees": scales.view_degrees and 2,
            "features": scales.features and scales.features.length,
            "labels": scales.labels and scales.labels.length,
        }
        return {name: int(dimension) for name, dimension in dimensions.items() if dimension}

    def _problems(self, hints: Hints) -> Iterator[Problem]:
        dimensions = self._dimensions()
        for name in Hints.model_fields:
            place, value = f"hints.{name}", getattr(hints, name)
            if value is None and name in dimensions:
                yield Problem(place, "nothing", "a hint: the group compares devices by it", "add it")
            elif value is not None and name not in dimensions:
                yield Problem(place, "a hint", "none: the group does not compare by it", "leave it out")
            elif isinstance(value, tuple) and len(value) != dimensions[name]:
                expected = f"{counted(dimensions[name], 'number')}, as in all of the group"
                yield Problem(place, f"{len(value)}: {shown(value)}", expected, "summarize data the same way")

    def _legs(self, hints: Hints) -> Iterator[Point]:
        scales = self.scales
        if scales.location_km and hints.location:
            yield _on_earth(hints.location) / scales.location_km
        if scales.time_hours and hints.time:
            yield _hours(hints.time) / scales.time_hours
        if scales.view_degrees and hints.view_degrees is not None:
            yield _on_circle(hints.view_degrees) / _chord(scales.view_degrees)
        if scales.features and hints.features:
            yield np.array(hints.features) / scales.features.scale
        if scales.labels and hints.labels:
            yield np.sqrt(np.array(hints.labels) / 2) / scales.labels.scale


def _on_earth(location: Location) -> Point:
    """Return a location in km from the centre of the earth, [3]."""
    north, east = math.radians(location.latitude), math.radians(location.longitude)
    across = math.cos(north)
    return _EARTH_KM * np.array([across * math.cos(east), across * math.sin(east), math.sin(north)])


def _hours(time: datetime) -> Point:
    return np.array([time.timestamp() / 3600])


def _on_circle(degrees: float) -> Point:
    return np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])


def _chord(degrees: float) -> float:
    """Return the distance between two points on the unit circle."""
    return 2 * math.sin(math.radians(degrees) / 2)
