"""Correlation hints: summaries of a device's data, used to find devices with similar data (paper 5.2)."""

import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field, ValidationError

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.parsing.validation import InvalidValue, Settings, problems_of

__all__ = ["Hints", "Location"]

#: Maximum deviation from 1 of the sum of a label histogram.
_SUM_TOLERANCE = 1e-3

_MOST_NUMBERS = 1024

Shares = tuple[float, ...]


class Location(Settings):
    """The origin of data: degrees north, degrees east."""

    latitude: Annotated[
        float, Field(ge=-90, le=90, description="degrees north, from -90 to 90", examples=[47.37])
    ]
    longitude: Annotated[
        float, Field(ge=-180, le=180, description="degrees east, from -180 to 180", examples=[8.54])
    ]


def _numbers(raw: object) -> Shares:
    numbers = tuple(raw) if isinstance(raw, list | tuple) else ()
    finite = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    if not finite or not 1 <= len(numbers) <= _MOST_NUMBERS:
        raise InvalidValue(raw, f"1 to {_MOST_NUMBERS} finite numbers", "leave the hint out, or correct it")
    return tuple(map(float, numbers))


def _shares(raw: object) -> Shares:
    shares = _numbers(raw)
    if min(shares) < 0 or abs(sum(shares) - 1) > _SUM_TOLERANCE:
        raise InvalidValue(raw, "shares from 0 to 1 whose sum is 1", "divide the counts by their sum")
    return shares


class Hints(Settings):
    """A summary of a device's data that does not include the data. Hints that are None are not sent.

    Attributes:
        location: Where the data were taken.
        time: When the data were taken, with the time zone.
        view_degrees: Direction of the camera, clockwise from north.
        features: A summary of the data's features, such as the mean over the examples; any length.
        labels: Share of each class.
    """

    location: Location | None = None
    time: AwareDatetime | None = Field(
        default=None, description="a time with its zone", examples=["2026-05-01T12:00:00Z"]
    )
    view_degrees: float | None = Field(
        default=None, ge=0, lt=360, description="degrees clockwise from north, below 360", examples=[90]
    )
    features: Annotated[Shares, BeforeValidator(_numbers)] | None = None
    labels: Annotated[Shares, BeforeValidator(_shares)] | None = None

    @classmethod
    def of(cls, raw: Mapping[str, object]) -> "Hints":
        """Return hints from a device's message.

        Raises:
            MistifyError: INVALID_PUBLICATION, with every problem.
        """
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise invalid_hints(problems_of(error, cls, "hints", raw)) from error


def invalid_hints(problems: list[Problem]) -> MistifyError:
    """Return the error for invalid hints."""
    return MistifyError(ErrorCode.INVALID_PUBLICATION, "the hints cannot be used", problems)
