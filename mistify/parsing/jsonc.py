"""JSON for people (paper, Figure 3): with // and /* */ comments and trailing commas.

In other respects it is stricter than Python's own parser: duplicate keys, NaN, Infinity, numbers beyond the
range of floats and unpaired surrogates are problems, and size and nesting are limited.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeAlias

from mistify.errors import Problem
from mistify.parsing.validation import first_of, json_path, shown

MAX_CHARACTERS = 16 * 2**20
MAX_DEPTH = 32

_Duplicates: TypeAlias = dict[int, tuple[dict[str, object], list[str]]]

# An unterminated string or comment matches up to the latest position at which it could have ended, so that
# the scan takes linear time for any text.
_STRING = r'"(?:\\.|[^"\\\n])*+"?'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|/\*(?s:.*?\*/|.*)")
# A comma without a preceding value is kept, so that the parser reports it.
_TRAILING_COMMA = re.compile(_STRING + r"|[\[{,:]\s*+,|,(?=\s*+[\]}])")
# An unpaired surrogate: the parser has combined pairs into one character.
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NOT_NEWLINE = re.compile(r"[^\n]")


class JsonError(ValueError):
    """A text that is not JSON; carries the problem that stopped the parser."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_json(text: str) -> tuple[object, list[Problem]]:
    """Parse a JSON text.

    Returns:
        The value, and its problems by JSON path: duplicate keys, unusable numbers, texts that cannot be
        encoded in UTF-8.

    Raises:
        JsonError: The text is too large, nested too deeply, or not JSON.
    """
    if len(text) > MAX_CHARACTERS:
        limit = f"at most {MAX_CHARACTERS:,}"
        raise JsonError(
            Problem(_place(()), f"{len(text):,} characters", limit, "split it into several batches")
        )
    # id -> (object, its duplicate keys). Keeping the object prevents reuse of its id.
    duplicates: _Duplicates = {}

    def make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            duplicates[id(made)] = (made, [key for key, count in counts.items() if count > 1])
        return made

    text = text.removeprefix("\ufeff")  # editors of Windows write this mark
    parse = partial(json.loads, object_pairs_hook=make_object, parse_int=_integer)
    try:
        try:
            value = parse(text)
        except json.JSONDecodeError:  # perhaps of its comments and trailing commas
            value = parse(_plain_json(text))
    except json.JSONDecodeError as error:
        raise JsonError(_syntax_problem(text, error.pos, error.msg)) from error
    except RecursionError as error:
        raise JsonError(_too_deep(_place(()))) from error
    return value, list(first_of(_problems(value, (), duplicates)))


def _plain_json(text: str) -> str:
    """Replace comments and trailing commas by spaces, so that all other characters keep their positions."""
    return _TRAILING_COMMA.sub(_blank_comma, _COMMENT.sub(_blank_comment, text))


def _blank_comment(match: re.Match[str]) -> str:
    comment = match[0]
    if comment.startswith('"'):
        return comment
    if comment.startswith("/*") and (len(comment) < 4 or not comment.endswith("*/")):
        raise JsonError(_syntax_problem(match.string, match.start(), "Unterminated comment"))
    return _NOT_NEWLINE.sub(" ", comment)


def _blank_comma(match: re.Match[str]) -> str:
    return " " if match[0] == "," else match[0]


def _integer(digits: str) -> int | float:
    """Parse an integer; one beyond the range of floats becomes infinity, which is reported with its path."""
    return int(digits) if math.isfinite(float(digits)) else math.inf


def _syntax_problem(text: str, position: int, message: str) -> Problem:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    excerpt = shown(text[position : position + 20]) if position < len(text) else "the end of the text"
    return Problem(f"line {line}, column {column}", excerpt, "JSON", message)


def _too_deep(place: str) -> Problem:
    return Problem(place, "deeply nested values", f"at most {MAX_DEPTH} levels", "flatten them")


def _unpaired_surrogate(place: str, text: str) -> Problem:
    expected = "characters, each with both halves of its surrogate pair"
    return Problem(place, shown(text), expected, "complete the pair, or remove the half")


def _place(keys: tuple[str | int, ...]) -> str:
    return json_path(keys) or "the text"


def _problems(value: object, keys: tuple[str | int, ...], duplicates: _Duplicates) -> Iterator[Problem]:
    if isinstance(value, float) and not math.isfinite(value):
        yield Problem(_place(keys), str(value), "a finite number", "use a number below 1e308")
    if isinstance(value, str) and _SURROGATE.search(value):
        yield _unpaired_surrogate(_place(keys), value)
    if not isinstance(value, dict | list):
        return
    if len(keys) >= MAX_DEPTH:
        raise JsonError(_too_deep(json_path(keys)))
    for twice in duplicates.get(id(value), (value, []))[1]:
        yield Problem(json_path((*keys, twice)), "the same key twice", "every key once", "remove one of them")
    children: Iterable[tuple[str | int, object]] = (
        value.items() if isinstance(value, dict) else enumerate(value)
    )
    for key, child in children:
        if isinstance(key, str) and _SURROGATE.search(key):
            yield _unpaired_surrogate(json_path((*keys, key)), key)
        yield from _problems(child, (*keys, key), duplicates)
