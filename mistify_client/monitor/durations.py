"""Durations in settings: "250ms", "2s", "5min"; seconds in the program."""

from typing import Annotated, Final

from pydantic import PlainSerializer, PlainValidator

from mistify.parsing.quantities import format_time, parse_milliseconds
from mistify.parsing.validation import InvalidValue

_EXPECTED: Final = 'a time such as "2s"'


def _seconds(raw: object) -> float:
    if isinstance(raw, int | float):
        raise InvalidValue(raw, _EXPECTED, "write its unit")
    try:
        return parse_milliseconds(raw) / 1000
    except InvalidValue as error:
        raise InvalidValue(raw, _EXPECTED, error.fix) from error


#: A duration above 0. Numbers without a unit are rejected, because elsewhere they mean milliseconds.
Seconds = Annotated[float, PlainValidator(_seconds), PlainSerializer(lambda value: format_time(1000 * value))]
