"""Durations in settings: "250ms", "2s", "5min"; seconds in the program."""

from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from mistify.parsing.quantities import format_time, parse_time
from mistify.parsing.validation import InvalidValue


def _seconds(raw: object) -> float:
    if isinstance(raw, int | float):
        raise InvalidValue(raw, 'a time such as "2s"', "write its unit")
    quantity = parse_time(raw)
    if quantity.relative:
        raise InvalidValue(raw, 'a time such as "2s"', "use ms, s or min")
    return quantity.value / 1000


#: A duration above 0. Numbers without a unit are rejected, because elsewhere they mean milliseconds.
Seconds = Annotated[float, PlainValidator(_seconds), PlainSerializer(lambda value: format_time(1000 * value))]
