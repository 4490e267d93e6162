"""Line numbers of JSON paths in hand-written texts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.parsing.jsonc import MAX_CHARACTERS
from mistify.parsing.positions import lines_of
from mistify.parsing.validation import json_path, paths_around

TEXT = """// goals
[
  {
    "id": "a", /* the
    first */ "model": "net.keras",
    "adaptation_goal": {
      "FLOP": "0.5x",
    },
  },
  {"id": "b",
   "adaptation_goal": {"latency": ["1ms",
                                   "2ms"]}},
]
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("[0]", 3),
        ("[0].id", 4),
        ("[0].model", 5),
        ("[0].adaptation_goal.FLOP", 7),
        ("[1]", 10),
        ("[1].adaptation_goal.latency[1]", 12),
        ("[1].dataset.train", 10),
        ("[0].adaptation_goal.FLOP.unit", 7),
    ],
)
def test_the_line_of_a_place_is_found(place: str, line: int) -> None:
    assert lines_of(TEXT, [place]) == {place: line}


def test_a_single_object_counts_as_the_first_config() -> None:
    assert lines_of('{\n"id": "a",\n"model": 3}', ["[0].model", "goals"]) == {"[0].model": 3}


def test_places_in_the_short_form_have_lines() -> None:
    text = '{"defaults": {\n"model": 1},\n"goals": [\n{"id": "x"}]}'
    assert lines_of(text, ["defaults.model", "goals[0].id"]) == {"defaults.model": 2, "goals[0].id": 4}


@pytest.mark.parametrize("key", ["a b", 'quo"ted', "back\\slash", "dot.[0]", "", "é"])
def test_places_below_any_key_have_lines(key: str) -> None:
    text = json.dumps({"goals": [{key: {"x": [1]}}]}, indent=1)
    place = json_path(["goals", 0, key, "x", 0])
    assert lines_of(text, [place]) == {place: 6}
    assert lines_of(text, [f"{place}.y"]) == {f"{place}.y": 6}
    assert list(paths_around(place)) == [
        place,
        json_path(["goals", 0, key, "x"]),
        json_path(["goals", 0, key]),
        "goals[0]",
        "goals",
    ]


@pytest.mark.parametrize("text", ["", "[", '[{"id": "a\n, 3', '{"a" [}] ,:', "/* no end", "[[[1]]"])
def test_texts_with_mistakes_are_read_to_the_end(text: str) -> None:
    lines = lines_of(text, ["[0].id", "a.b[3]"])
    assert all(1 <= line <= 1 + text.count("\n") for line in lines.values())


@pytest.mark.parametrize(
    "place",
    ["the list", "line 1, column 2", '[0]["a.b["].c', '[0]["\\"]"]', "a..b", "[0].", "]", '"', "[0]x\n"],
)
def test_the_search_ends_for_any_place(place: str) -> None:
    """Places contain keys written by users, which can be any text."""
    assert lines_of('[\n{"b": 1}]', [place]).get(place) in (None, 2)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_every_value_of_a_formatted_text_is_found_on_its_line(value: object) -> None:
    """With an indent, Python writes each key and each list element on its own line."""
    text = json.dumps(value, indent=1)
    lines = text.split("\n")
    for path, is_key in paths_of(value):
        place = json_path(path)
        line = lines_of(text, [place]).get(place)
        if not place:
            continue
        assert line is not None
        shown = lines[line - 1].strip()
        expected = json.dumps(path[-1]) if is_key else json.dumps(at(value, path), indent=1).split("\n")[0]
        assert shown.startswith(expected)


def paths_of(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], bool]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: list[tuple[tuple[str | int, ...], bool]] = []
    for key, each in inner:
        found += [((*path, key), isinstance(key, str)), *paths_of(each, (*path, key))]
    return found


def at(value: object, path: tuple[str | int, ...]) -> object:
    for key in path:
        value = value[key]  # type: ignore[index]
    return value


def test_no_lines_are_found_in_texts_beyond_the_size_limit() -> None:
    text = '[{"a": 1}]'
    assert lines_of(text.ljust(MAX_CHARACTERS), ["[0].a"]) == {"[0].a": 1}
    assert lines_of(text.ljust(MAX_CHARACTERS + 1), ["[0].a"]) == {}
