"""Conversion of pydantic's errors to problems."""

import pytest
from pydantic import Field, ValidationError

from mistify.parsing.validation import InvalidValue, Settings, json_path, problems_of, shown, unknown_name


class Inner(Settings):
    rate: float = Field(gt=0, description="a rate above 0", examples=[0.1])
    plain: int = 1


class Outer(Settings):
    inner: Inner | None = None
    several: tuple[Inner, ...] = ()
    named: dict[str, Inner] = Field(default_factory=dict)
    nested: tuple["Outer", ...] = ()
    texts: tuple[str, ...] = ()
    few: tuple[int, ...] = Field((0, 0), min_length=2)


def problems(value, place=""):
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(value)
    return problems_of(caught.value, Outer, place)


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ((3, "adaptation_goal", "FLOP"), "[3].adaptation_goal.FLOP"),
        (("a", "x y", 0), 'a["x y"][0]'),
        (("ключ",), '["\\u043a\\u043b\\u044e\\u0447"]'),
        ((), ""),
    ],
)
def test_json_paths(keys, path):
    assert json_path(keys) == path


def test_places_are_prefixed():
    (problem,) = problems({"inner": {"rate": -1}}, "[2].algorithm.config")

    assert problem.place == "[2].algorithm.config.inner.rate"


def test_a_field_describes_the_expected_value():
    wrong, missing = problems({"inner": {"rate": "fast"}, "several": [{}]})

    assert (wrong.value, wrong.expected, wrong.fix) == ('"fast"', "a rate above 0", "for example 0.1")
    assert (missing.place, missing.value) == ("several[0].rate", "nothing")
    assert missing.expected == "a rate above 0"


@pytest.mark.parametrize("value", [{"named": {"a": {}}}, {"nested": [{"inner": {}}]}])
def test_a_nested_field_describes_the_expected_value(value):
    (missing,) = problems(value)
    assert missing.expected == "a rate above 0"


def test_a_field_without_a_description_gets_pydantics_message():
    (problem,) = problems({"inner": {"rate": 1, "plain": "x"}})

    assert "valid integer" in problem.expected


def test_unknown_keys_are_reported_at_any_depth():
    actual = problems({"iner": 1, "several": [{"rate": 1, "Rate": 2}]})

    assert {problem.place: problem.fix for problem in actual} == {
        "iner": 'did you mean "inner"?',
        "several[0].Rate": 'did you mean "rate"?',
    }


def test_similar_names_are_suggested():
    assert unknown_name("zzz", ["b", "a"]) == ("one of a, b", "remove it or use a known name")
    assert unknown_name("FLOP", ["flop"])[1] == 'did you mean "flop"?'


def test_a_few_of_many_names_are_listed():
    expected, fix = unknown_name("n901 ", [f"n{number:03}" for number in range(1000)])
    assert expected.startswith("one of n000, n001, ")
    assert expected.endswith("n039 and 960 more")
    assert fix == 'did you mean "n901"?'


def test_kinds_of_values_are_called_by_their_json_names():
    wrong = problems({"texts": [1], "named": [], "several": "x", "few": []})
    assert {problem.place: problem.expected for problem in wrong} == {
        "texts[0]": "a text",
        "named": "an object",
        "several": "a list",
        "few": "2 or more items",
    }


def test_a_list_with_a_wrong_item_is_not_too_short_as_well():
    (problem,) = problems({"few": [1, None]})
    assert problem.place == "few[1]"


def test_a_value_that_should_be_an_object_is_reported_with_its_keys():
    (problem,) = problems({"inner": [1]})

    assert (problem.expected, problem.fix) == ("an object", "its keys can be rate, plain")


def test_long_values_are_shortened():
    assert len(shown("x" * 1000)) == 80
    assert shown("\ud800") == '"\\ud800"'


def test_invalid_values_are_value_errors():
    assert str(InvalidValue(5, "text", "quote it")) == "got 5; expected text; quote it"
    assert InvalidValue(5, "text", "quote it").problem("[0].id").place == "[0].id"
