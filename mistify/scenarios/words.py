"""The words of tasks: properties, and names for several of them. Reading configs needs no more than these."""

import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from mistify.parsing.validation import InvalidValue

#: Separates properties in a text; properties must not contain it.
SEPARATOR: Final = ","

_MOST_CHARACTERS: Final = 64


def number_as_text(raw: object) -> object:
    """Return a property or a class, numbers as text."""
    return str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw


def as_word(raw: object) -> str:
    """Return a property, or a name of properties, as it is compared with others.

    Raises:
        InvalidValue: It is too long, or has characters that cannot be typed or seen.
    """
    text = number_as_text(raw)
    word = composed(text) if isinstance(text, str) else ""
    if not 0 < len(word) <= _MOST_CHARACTERS or SEPARATOR in word or not word.isprintable():
        expected = f"a text of 1 to {_MOST_CHARACTERS} printable characters without commas"
        raise InvalidValue(raw, expected, "correct it")
    return word


def composed(text: str) -> str:
    """Return a text without surrounding spaces, and with one character for each letter with its accents."""
    return unicodedata.normalize("NFC", text.strip())


def _each_key_once(raw: Any) -> Any:
    """Refuse keys that differ in spaces alone."""
    if isinstance(raw, Mapping):
        seen = set[str]()
        for key in raw:
            if composed(str(key)) in seen:
                raise InvalidValue(key, "each name once", "rename it, or leave it out")
            seen.add(composed(str(key)))
    return raw


Word = Annotated[str, BeforeValidator(as_word)]
Words = Annotated[
    tuple[Word, ...], Field(min_length=1, description="a list of words without commas", examples=[["a", "b"]])
]
NamedWords = Annotated[dict[Word, Words], BeforeValidator(_each_key_once)]
