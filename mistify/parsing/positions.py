"""The line numbers of values in a JSON text."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from mistify.parsing.jsonc import MAX_CHARACTERS
from mistify.parsing.validation import json_path, paths_around

#: Tokens of JSON with comments; comments and spaces are skipped. An invalid token extends to the end of its
#: line, so that lines are also found in invalid texts.
_TOKEN: Final = re.compile(
    r'(?P<string>"(?:\\.|[^"\\\n])*+"?)|(?P<comment>//[^\n]*|/\*(?s:.*?\*/|.*))|(?P<mark>[{}\[\],:])'
    r"|(?P<word>[^\s{}\[\],:\"/]+)"
)


def lines_of(text: str, places: Iterable[str]) -> dict[str, int]:
    """Return the line number (from 1) at which each JSON path begins.

    Args:
        text: JSON with comments, possibly invalid.
        places: JSON paths such as `[3].adaptation_goal.FLOP`. A missing place has the line of its innermost
            existing parent. If the text is one object, `[0]` is that object.

    Returns:
        Place -> line, without places that are not in the text; empty if the text is too large to parse.
    """
    lines: dict[str, int] = {}
    for path, line in _positions(text) if len(text) <= MAX_CHARACTERS else ():
        lines.setdefault(path, line)
    nearest = {place: _nearest(place, lines) for place in places}
    return {place: line for place, line in nearest.items() if line is not None}


def _nearest(place: str, lines: dict[str, int]) -> int | None:
    for path in paths_around(place):
        if path in lines:
            return lines[path]
        if path.startswith("[0].") and path.removeprefix("[0].") in lines:
            return lines[path.removeprefix("[0].")]
    return None


def _positions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the path of each value and the line on which the value, or its key, begins."""
    keys: list[str | int] = []
    expects_key = False
    line, counted = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        part, kind = match[0], match.lastgroup
        if kind == "comment":
            continue
        if kind == "string" and expects_key:
            keys[-1], expects_key = _read(part), False
            yield json_path(keys), line
        elif part in ("{", "["):
            if keys and isinstance(keys[-1], int):
                yield json_path(keys), line
            keys.append("" if part == "{" else 0)
            expects_key = part == "{"
        elif part in ("}", "]"):
            del keys[-1:]
            expects_key = False
        elif part == "," and keys:
            here = keys[-1]
            expects_key = isinstance(here, str)
            if isinstance(here, int):
                keys[-1] = here + 1
        elif keys and isinstance(keys[-1], int):
            yield json_path(keys), line


def _read(string: str) -> str:
    try:
        return str(json.loads(string))
    except ValueError:
        return string.strip('"')
