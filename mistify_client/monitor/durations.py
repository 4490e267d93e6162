"""Times in settings: "250ms", "2s", "5min"; seconds in the program."""

from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from mistify.parsing.quantities import format_time, parse_time
from mistify.parsing.validation import InvalidValue


def _seconds(given: object) -> float:
    if isinstance(given, int | float):
        raise InvalidValue(given, 'a time such as "2s"', "write its unit")
    quantity = parse_time(given)
    if quantity.relative:
        raise InvalidValue(given, 'a time such as "2s"', "use ms, s or min")
    return quantity.value / 1000


#: Above 0. Plain numbers are refused: elsewhere they are milliseconds.
Seconds = Annotated[float, PlainValidator(_seconds), PlainSerializer(lambda value: format_time(1000 * value))]
