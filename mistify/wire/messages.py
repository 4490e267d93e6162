"""Conversion between values and messages whose fields have the same names.

Values are frozen dataclasses and pydantic models that consist of texts, numbers, enumerations, tuples,
mappings and further values of these kinds. Enumerations are sent as their values; None is sent as an empty
text for optional texts, and for other types requires a message field with presence.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.message import DecodeError, Message
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import shown

E = TypeVar("E", bound=Enum)
M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Codec(NamedTuple):
    """The conversion of one type to messages and back.

    Attributes:
        encode: Converts a value to an argument of a message's constructor; a dict for a nested message.
        decode: Converts an attribute of a message to a value.
    """

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_SAME = Codec(lambda value: value, lambda value: value)
_OPTIONAL_TEXT = Codec(lambda text: text or "", lambda text: text or None)
_MAPPING = Codec(lambda mapping: mapping, dict)


class Converter:
    """Codecs derived from types on first use.

    Args:
        codecs: Codecs for types whose messages have a different structure.
    """

    def __init__(self, codecs: Mapping[Any, Codec] = MappingProxyType({})) -> None:
        self._codecs: dict[Any, Codec] = {
            **dict.fromkeys((str, bytes, int, float, bool), _SAME),
            str | None: _OPTIONAL_TEXT,
            **codecs,
        }

    def to_message(self, value: object, kind: type[M]) -> M:
        """Convert a value to a message of the given kind."""
        return kind(**self._codec(type(value)).encode(value))

    def from_message(self, message: Message, kind: type[T]) -> T:
        """Convert a message to a value.

        Raises:
            MistifyError: INVALID_MESSAGE, it contains something unknown to this version.
        """
        value: T = self._codec(kind).decode(message)
        return value

    def _codec(self, kind: Any) -> Codec:
        if kind not in self._codecs:
            self._codecs[kind] = self._derived(kind)
        return self._codecs[kind]

    def _derived(self, kind: Any) -> Codec:
        origin, parts = get_origin(kind), get_args(kind)
        if origin is None:
            return self._of_class(kind)
        if origin is Annotated:
            return self._codec(parts[0])
        if origin is tuple:
            return self._sequence(self._codec(parts[0]))
        if origin in (Union, UnionType):
            return self._optional(*(part for part in parts if part is not NoneType))
        return _SAME if origin is Literal else _MAPPING

    def _of_class(self, kind: type) -> Codec:
        if issubclass(kind, Enum):
            return Codec(lambda member: member.value, partial(_member, kind))
        if is_dataclass(kind) or issubclass(kind, BaseModel):
            return self._record(kind)
        raise TypeError(f"{kind} cannot be converted to a message")

    def _optional(self, kind: Any) -> Codec:
        encode, decode = self._codec(kind)
        return Codec(lambda value: None if value is None else encode(value), decode)

    def _sequence(self, part: Codec) -> Codec:
        encode, decode = part
        if part is _SAME:
            return Codec(lambda values: values, tuple)
        return Codec(
            lambda values: [encode(value) for value in values],
            lambda values: tuple([decode(value) for value in values]),
        )

    def _record(self, kind: type[T]) -> Codec:
        own = [
            (name, alias, self._codec(hint), _has_presence(hint)) for name, alias, hint in _fields_of(kind)
        ]
        copied = [(name, alias) for name, alias, codec, _ in own if codec is _SAME]
        converted = [field for field in own if field[2] is not _SAME]

        def encode(value: T) -> dict[str, Any]:
            message = {alias: getattr(value, name) for name, alias in copied}
            for name, alias, codec, _ in converted:
                message[alias] = codec.encode(getattr(value, name))
            return message

        def decode(message: Message) -> T:
            values = {alias: getattr(message, alias) for _, alias in copied}
            for _, alias, codec, has_presence in converted:
                present = not has_presence or message.HasField(alias)
                values[alias] = codec.decode(getattr(message, alias)) if present else None
            try:
                return kind(**values)
            except ValidationError as error:
                raise unknown(kind, values) from error

        return Codec(encode, decode)


def _member(kind: type[E], value: Any) -> E:
    """Return the member with a value; an enumeration may know more values than it lists."""
    try:
        return kind(value)
    except ValueError as error:
        raise unknown(kind, value) from error


def enum_codec(kind: type[E], numbers: Mapping[E, Any]) -> Codec:
    """Return the codec of an enumeration with numbers in messages.

    Args:
        numbers: Member -> its number in messages.
    """
    members = {number: member for member, number in numbers.items()}

    def decode(number: Any) -> E:
        if number not in members:
            raise unknown(kind, number)
        return members[number]

    return Codec(numbers.__getitem__, decode)


def decoded(decode: Callable[[bytes], M], content: bytes) -> M:
    """Return the message in the bytes that another side sent.

    Raises:
        MistifyError: INVALID_MESSAGE, they are no message of this kind.
    """
    try:
        return decode(content)
    except DecodeError as error:
        raise MistifyError(ErrorCode.INVALID_MESSAGE, f"the other side sent no message: {error}") from error


def unknown(kind: type, value: object) -> MistifyError:
    """Return the error for a value that only another version of Mistify knows."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
    return MistifyError(
        ErrorCode.INVALID_MESSAGE,
        f"the other side sent the {name} {shown(value)}, which this version does not know; "
        "use the same version of mistify on both sides",
    )


def _fields_of(kind: type) -> list[tuple[str, str, Any]]:
    """Return the name, the name in messages, and the type of each field of a dataclass or model."""
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        return [(field.name, field.name, hints[field.name]) for field in fields(kind)]
    models: dict[str, FieldInfo] = kind.model_fields  # type: ignore[attr-defined]
    return [(name, field.alias or name, hints[name]) for name, field in models.items()]


def _has_presence(hint: Any) -> bool:
    """Check whether a message records the presence of a field of this type."""
    return NoneType in get_args(hint) and str not in get_args(hint)
