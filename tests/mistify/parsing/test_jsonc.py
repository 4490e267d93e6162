"""Reading JSON with comments and trailing commas: the same values, the same positions, linear time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.parsing.jsonc import MAX_CHARACTERS, MAX_DEPTH, JsonError, read_json

# Texts with many comment signs, quotes and commas.
TRICKY = st.text(st.sampled_from('/*,"\\]}[{: \n\ta1'), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TRICKY,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TRICKY, children, max_size=4),
    max_leaves=20,
)


def problem(text):
    with pytest.raises(JsonError) as caught:
        read_json(text)
    return caught.value.problem


@given(JSON, st.sampled_from([None, 2]))
def test_plain_json_is_read_unchanged(value, indent):
    assert read_json(json.dumps(value, indent=indent)) == (value, [])


def test_a_byte_order_mark_is_ignored():
    assert read_json('\ufeff{"a": 1}') == ({"a": 1}, [])


@given(JSON)
def test_comments_and_trailing_commas_change_nothing(value):
    lines = json.dumps(value, indent=1, ensure_ascii=False).split("\n")
    decorated = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        last_element = following.strip(" ,") in ("]", "}") and not line.endswith(("[", "{"))
        decorated.append(f'/* a, "b" ] */ {line}{"," if last_element else ""} // c, "d }} */')

    assert read_json("\n".join(decorated)) == (value, [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2,], // end\n}', {"a": [1, 2]}),
        ('["// no comment", "/* none */", "a,]"]', ["// no comment", "/* none */", "a,]"]),
        ('["\\"//", 1]', ['"//', 1]),
        ("/**/[]/***/", []),
        ("[1 /* , */ , /* ] */ ]", [1]),
    ],
)
def test_examples(text, value):
    assert read_json(text) == (value, [])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[1, 2", "line 1, column 6"),
        ("[\n  /* two\n lines */ 1,, 2]", "line 3, column 13"),
        ("[,]", "line 1, column 2"),
        ('{"a":,}', "line 1, column 6"),
        ("[1,\n // c\n 2 3]", "line 3, column 4"),
        ("[1] /* open", "line 1, column 5"),
        ("[1] /*/", "line 1, column 5"),
        ('["open]', "line 1, column 2"),
        ("", "line 1, column 1"),
    ],
)
def test_syntax_errors_keep_their_position(text, place):
    assert problem(text).place == place


def test_every_duplicate_key_and_impossible_number_is_named():
    value, problems = read_json(
        '[{"a": 1, "b": {"c": 1, "c": NaN}, "a": 2}, -Infinity, 1e999, 1%s, {"x y": NaN}]' % ("0" * 5000)
    )

    assert value[0]["a"] == 2
    assert [each.place for each in problems] == [
        "[0].a",
        "[0].b.c",
        "[0].b.c",
        "[1]",
        "[2]",
        "[3]",
        '[4]["x y"]',
    ]
    assert [each.value for each in problems[:2]] == ["the same key twice"] * 2


def test_invalid_unicode_is_reported():
    value, problems = read_json(
        r'[{"x": "\ud800", "\udfff": {"y": ["a\ude00\ud83d"]}}, "\ud83d\ude00", "\ud83d\ude00\udc00"]'
    )

    assert value[1] == "\N{GRINNING FACE}"
    assert [(each.place, each.value) for each in problems] == [
        ("[0].x", r'"\ud800"'),
        (r'[0]["\udfff"]', r'"\udfff"'),
        (r'[0]["\udfff"].y[0]', r'"a\ude00\ud83d"'),
        ("[2]", r'"\ud83d\ude00\udc00"'),
    ]


def test_limits():
    assert "levels" in problem("[" * 100_000).expected
    assert "levels" in problem("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)).expected
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)[1] == []
    assert "characters" in problem(" " * (MAX_CHARACTERS + 1)).value


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["/*", '"\\"', '"', ", ", "[ ", "//", "\\", ",\n"])
def test_hostile_texts_take_linear_time(piece):
    for text in (piece * 300_000, '"' + piece * 300_000, "[1" + piece * 300_000):
        assert problem(text).place


@pytest.mark.timeout(20)
def test_many_keys_with_one_duplicate_take_linear_time():
    pairs = ",".join(f'"{key}":1' for key in range(200_000))

    assert [each.place for each in read_json(f'{{{pairs},"7":2}}')[1]] == ['["7"]']
